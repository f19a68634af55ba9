// The server of the rows of block devices: an export server with memory devices; and what its
// clients share.
//
// In a child only (Process::call), but for start_server(); each has its one reactor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/braid_side.h"
#include "bench/process.h"
#include "bench/rounds.h"
#include "bnbd/remote.h"
#include "trs/server.h"
#include "vhca/device.h"

namespace braid::bench {

inline constexpr const char* kStoreExport = "bench";
inline constexpr const char* kOtherExport = "other";  // for another client, small
inline constexpr uint64_t kOtherBytes = 64 << 20;

enum class Wire : uint8_t { kInHost, kTcp };
std::string_view to_string(Wire wire);

/// How both sides of a row speak.
struct RemoteWay {
  Wire wire = Wire::kInHost;
  /// How long a reactor spins before it sleeps. 0: it never spins.
  uint64_t poll_budget_ns = base::Reactor::Options().poll_budget_ns;
};

/// A software HCA for the wire. Faults of ports: both ends of a TCP wire say that there may be
/// some.
std::unique_ptr<vhca::Device> create_device(const BraidSide& side, Wire wire,
                                            bool port_faults = false);
/// A session with the server on `port`.
std::unique_ptr<bnbd::RemoteSession> connect(const BraidSide& side, vhca::Device& device,
                                             uint16_t port, const std::string& name = "bench");
std::unique_ptr<bnbd::RemoteDevice> open_export(const BraidSide& side, bnbd::RemoteSession& session,
                                                const char* name);

enum class StoreKind : uint8_t { kMemory, kNull };
struct Store {
  std::string name;
  uint64_t bytes = 0;
  StoreKind kind = StoreKind::kMemory;
  bool huge_pages = false;
};
struct ServeOptions {
  std::vector<Store> stores = {};
  std::string root = {};  // a folder whose files are exported, too, with O_DIRECT; empty: none
  trs::ChunkGuard guard = trs::ChunkGuard::kNone;
  RemoteWay way = {};
  unsigned sessions_max = 64;
  bool port_faults = false;  // clients may have some
};
/// A process that serves, on the server's CPU.
struct ServerProcess {
  Process process;
  uint16_t port = 0;
};
/// Starts one, from the main thread, which serves for as long as the object lives.
base::Result<ServerProcess> start_server(Bench& bench, const ServeOptions& options);

}  // namespace braid::bench
