// A node: one process of Braid on this host, whatever its role (foreground server, foreground
// device, daemon).
//
// It owns the Host, its reactors on threads of their own, its devices (cli/hcas.h), an export
// server (if asked) and the mapped devices. Threads: start(), call() and stop() from any thread but
// the reactors'; the work itself runs on the first of them, the home; requests of exports and of
// mapped devices on as many as were asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bnbd/kernel_device.h"
#include "cli/hcas.h"
#include "cli/key_file.h"
#include "cli/metrics/options.h"
#include "cli/resolve.h"
#include "trs/server.h"
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
  std::vector<vhca::Address> listen_further;  // clients may have paths by each
  bool listen_tcp = false;  // for other hosts and users, too; else shared memory inside this host
  std::vector<SyntheticExport> memory;
  std::vector<SyntheticExport> null;
  bool huge_pages = false;  // of `memory`
  bool read_only = false;
  bool block_devices = false;  // also export block devices that lie beneath the root
  /// Of the clients that are let in (reach/key_file.h); empty: everybody is.
  std::string keys_file;
  /// Threads that serve: the node's own one, the home, and further ones. Clients' I/O connections
  /// are spread over them; exports and their disks are the home's.
  unsigned reactors = 1;
  uint32_t queue_depth = 128;  // requests in flight per session
  uint32_t max_io_bytes = 1 << 20;
  trs::ChunkGuard chunk_guard = trs::ChunkGuard::kNone;
};

/// A device of this process for NBD clients, as opposed to one of a server's.
struct LocalNbdExport {
  enum class Kind : uint8_t { kFile, kMemory, kNull };
  Kind kind = Kind::kMemory;
  std::string name;
  std::string path;         // kFile: absolute
  uint64_t size_bytes = 0;  // the others
};

/// An NBD server: its local exports, and the devices that are mapped with the front end
/// "nbd-server".
struct NbdOptions {
  std::string unix_path;  // absolute; empty: none
  std::vector<vhca::Address> listen;
  std::vector<LocalNbdExport> local;
  std::string default_export;  // as bnbd::NbdServiceOptions has it
  bool read_only = false;
};

/// Threads of a node, serving and mapping.
inline constexpr unsigned kReactorsMax = 16;

/// A device that the node maps by itself when it starts, and tries again to map until its server is
/// there: until then `braid list`, `show` and `why` tell of it, and `braid unmap` gives it up.
struct WantedMap {
  std::string name;    // of the device
  std::string target;  // for people
  std::string params;  // of the call "map", as JSON
  std::string source;  // who wants it, for people: "/etc/braid/braid.toml:12:1"
};

struct NodeOptions {
  std::string name;  // of its control socket
  /// As HcaOptions::device.
  std::string device;
  std::string role;  // "daemon", "server", "device", "nbd"
  /// The key of maps that name none (reach/key_file.h); empty: they have none.
  std::string key_file;
  std::optional<ServeOptions> serve;
  std::optional<NbdOptions> nbd;
  std::optional<MetricsOptions> metrics;  // none: nobody is told by HTTP
  /// Of maps that name no number: threads that carry a device's requests, the home and further
  /// ones, which are started when they are needed.
  unsigned map_reactors = 1;
  /// That the node's threads may run on; 0: as the kernel says. Devices with more reactors than
  /// that say so.
  unsigned processors = 0;
  /// Servers at addresses of this machine are reached by TCP, as all others are.
  bool tcp_within_host = false;
  /// Take the measures of a process that the kernel's write-back may wait for (bnbd/io_process.h).
  /// Servers too: their client may be a node of this machine.
  bool io_process = false;
  std::vector<WantedMap> maps;
  /// Called on the home's thread, and not to wait there, when what is wanted and not mapped yet has
  /// changed; once at the start. Empty: nobody.
  std::function<void(const std::vector<std::string>& waiting)> still_wanted;
  /// Between two attempts to map what is wanted.
  uint64_t wanted_retry_ns = 1'000'000'000;
  uint64_t poll_budget_ns = 50'000;
  /// How long a server tries to listen where somebody listens already: a process that was killed
  /// keeps its ports until the kernel has ended its io_uring, which may be a while after it is
  /// gone.
  uint64_t port_patience_ns = 2'000'000'000;
  /// Called each time before it tries again; empty: nobody.
  std::function<void()> port_taken;
  /// Unmapping by force: how long a server with a path may take to give requests back before the
  /// path is dropped.
  uint64_t force_patience_ns = 10'000'000'000;
  /// So long `remap` waits for a path that is being made.
  uint64_t path_patience_ns = 5'000'000'000;
  /// A path that was down when its device was mapped, and is then refused by a server that does not
  /// know the session, for so long while the session has another path: it leads to another server
  /// (one that was restarted would have lost the other path, too) and is taken down.
  uint64_t stranger_after_ns = 3'000'000'000;
  /// How `map` finds the addresses of a host name, on a worker thread, and how long it waits. One
  /// that takes longer keeps its worker; with two of those, no other name is looked up.
  LookUp look_up = look_up_host;
  uint64_t look_up_patience_ns = 10'000'000'000;
  /// How a key file is read, on a worker thread: as reach/key_file.h does it, but in tests. So long
  /// may it take; one that takes longer keeps its worker, four of those hold up the next ones.
  std::function<base::Result<trs::KeyPtr>(const std::string& path)> read_key = cli::read_key;
  std::function<base::Result<std::shared_ptr<const trs::KeyRing>>(const std::string& path)>
      read_keys = cli::read_keys;
  uint64_t file_patience_ns = 10'000'000'000;
  /// How the kernel gets a device: bnbd::attach, but in tests.
  std::function<base::Task<base::Result<std::unique_ptr<bnbd::KernelDevice>>>(
      base::Reactor&, bnbd::BlockDevice&, bnbd::KernelDeviceOptions)>
      attach = bnbd::attach;
};

struct NodeSample;  // cli/metrics/sample.h

class Node {
 public:
  /// All that can fail at the start does: a taken name or port, a root that is no directory.
  static base::Result<std::unique_ptr<Node>> start(NodeOptions options);
  virtual ~Node() = default;  // stops by force what has not been stopped

  /// All that it counts: `done` is called on the reactor's thread. Does not block.
  virtual void sample(std::function<void(NodeSample)> done) = 0;
  /// A control call: "status", "sample" (a part of what sample() gives), "map", "unmap", "remap",
  /// "path"; of a server "close", "resize", "reload_keys". Blocks until it is done.
  virtual base::Result<nlohmann::json> call(std::string_view method,
                                            const nlohmann::json& params) = 0;
  /// Unmaps every device and closes every session; `done` is called on the reactor's thread.
  /// Without `force` kBusy if devices are in use or cannot be written back: they stay mapped, and
  /// the node goes on. With it all is gone afterwards; an error says what went wrong on the way. It
  /// may be asked for while a stop without force is under way, which then ends too. kTimedOut when
  /// a disk that is served does not answer: then nothing may be destroyed, the process has to end
  /// by std::_Exit (the destructor does).
  virtual void stop(bool force, std::function<void(const base::Status&)> done) = 0;
  /// Has each reactor say that it runs, the home last; `done` is called on the home's thread when
  /// all have. One that is stuck never does.
  virtual void look_alive(std::function<void()> done) = 0;
};

}  // namespace braid::cli
