// A node: one process of Braid on this host, whatever its role (foreground server, foreground
// device, daemon).
//
// It owns the Host, one reactor on a thread of its own, the software HCA, an export server (if
// asked) and the mapped devices. Threads: start(), call() and stop() from any thread but the
// reactor's; the work itself runs on the reactor.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "vhca/device.h"

namespace braid::cli {

/// An export that is not a file: its name and size.
struct SyntheticExport {
  std::string name;
  uint64_t size_bytes = 0;
};

struct ServeOptions {
  std::string
      root;  // a directory; files beneath it are exported by their relative names; empty: none
  vhca::Address listen;
  std::vector<SyntheticExport> memory;
  std::vector<SyntheticExport> null;
  bool read_only = false;
  bool block_devices = false;  // also export block devices that lie beneath the root
  uint32_t queue_depth = 128;  // requests in flight per session
  uint32_t max_io_bytes = 1 << 20;
};

struct NodeOptions {
  std::string name;  // of its control socket
  std::string role;  // "daemon", "server", "device"
  std::optional<ServeOptions> serve;
  bool kernel_devices =
      false;  // it will serve devices to the kernel: lock memory, become an I/O process
  uint64_t poll_budget_ns = 50'000;
};

class Node {
 public:
  /// All that can fail at the start does: a taken name or port, a root that is no directory.
  static base::Result<std::unique_ptr<Node>> start(NodeOptions options);
  virtual ~Node() = default;  // stop() first

  /// A control call: "status", "map", "unmap", "why". Blocks until it is done.
  virtual base::Result<nlohmann::json> call(std::string_view method,
                                            const nlohmann::json& params) = 0;
  /// Unmaps every device and closes every session. kBusy, with nothing more than the free devices
  /// unmapped, when a device is in use and `force` is not set. kTimedOut when a disk that is served
  /// does not answer: then nothing may be destroyed, the process has to end by std::_Exit.
  virtual base::Status stop(bool force) = 0;
};

}  // namespace braid::cli
