// What a node counts, at one moment: made on its reactor (cli/node_sample.cc), turned into text or
// JSON on any other thread. Plain values (private to cli/).
//
// Counters begin at 0 with what they belong to: a device's when it is mapped, a path's when it is
// added, the node's with its process. docs/metrics.md tells each.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bnbd/block.h"
#include "bnbd/filters.h"
#include "bnbd/kernel_device.h"
#include "bnbd/latency.h"
#include "bnbd/nbd_service.h"
#include "bnbd/remote.h"
#include "bnbd/server.h"
#include "trs/client.h"
#include "trs/server.h"

namespace braid::cli {

/// A bnbd::LatencyHistogram without its empty buckets: index and count, in order.
struct HistogramSample {
  std::vector<std::pair<uint32_t, uint64_t>> buckets;
  uint64_t sum_ns = 0;
};
HistogramSample sample_of(const bnbd::LatencyHistogram& histogram);
/// As bnbd::LatencyHistogram::percentile_ns(), but for the largest: the end of its bucket.
uint64_t percentile_ns(const HistogramSample& histogram, double percent);
uint64_t count_of(const HistogramSample& histogram);

/// By bnbd::LatencyKind.
inline constexpr std::array<const char*, 3> kLatencyWords = {"read", "write", "other"};

struct FilterSample {
  std::string kind;  // "delay", "error", "rate", "checksum"
  std::string spec;  // as `braid map --filter` has it
  bnbd::FilterCounters done;
};

struct DeviceSample {
  std::string name;
  std::string path;  // "/dev/loop3"; empty: the kernel has it not
  std::string target;
  std::string backend;        // "remote", "file", "memory", "null"
  std::string server;         // "ip:port" of its session; empty: it has none
  uint64_t session = 0;       // its number in this node; 0: it has none
  std::string state;          // of kDeviceStates
  bool kernel = false;        // the kernel has it: `of_kernel` counts
  bool kernel_alive = false;  // and has not cut it off
  bool gave_up = false;
  uint64_t size_bytes = 0;
  uint64_t in_progress = 0, waiting = 0, sent = 0, reopened = 0, losses = 0, flushes_failed = 0;
  bnbd::BlockStatistics io;           // below the filters
  std::vector<FilterSample> filters;  // the first is nearest to the kernel
  bnbd::KernelDeviceStatistics of_kernel;
  std::array<HistogramSample, bnbd::kLatencyKinds> latency;
};
/// The states of devices, of sessions to servers, and of their paths.
inline constexpr std::array<const char*, 11> kDeviceStates = {
    "waiting",    "mapping", "open", "path-down", "unavailable", "replaced",
    "superseded", "revoked", "lost", "closed",    "unmapping"};
inline constexpr std::array<const char*, 5> kSessionStates = {"connecting", "connected",
                                                              "reconnecting", "lost", "closed"};
inline constexpr std::array<const char*, 4> kPathStates = {"connected", "connecting",
                                                           "reconnecting", "down"};

struct PathSample {
  uint64_t id = 0;
  std::string path;   // as its operator named it
  std::string hca;    // the RDMA device by which it goes, or the wire
  std::string state;  // of kPathStates
  uint64_t reconnects = 0, reconnects_failed = 0, failed_over = 0;
  std::vector<trs::ConnectionStatistics> connections;  // by cid; 0 carries no I/O
};
/// What all its connections for I/O have carried.
trs::ConnectionStatistics io_of(const PathSample& path);

/// A session to a server.
struct SessionSample {
  uint64_t number = 0;  // of those that the node has had
  std::string server;
  std::string peer;   // "Braid", "Linux"
  std::string state;  // of kSessionStates
  uint64_t queue_depth = 0;
  trs::ClientStatistics all;
  std::vector<trs::ClientStatistics> reactors;
  std::vector<PathSample> paths;
};

/// Who has an export open, by mode.
struct HoldersSample {
  uint64_t ro = 0, rw = 0, migration = 0;
};
struct ExportSample {
  std::string name;
  std::string kind;
  uint64_t size_bytes = 0;
  HoldersSample holders;
  bnbd::BlockStatistics io;
};

/// A path by which a client comes.
struct ClientPathSample {
  std::string peer;
  std::vector<trs::ServedStatistics> connections;  // by cid
};
/// A client's session with this node's server.
struct ClientSample {
  uint64_t number = 0;  // of those that the server has had
  std::string name;     // as the client says
  std::string peer;
  std::string kind;  // "Braid", "Linux"
  uint64_t devices = 0, in_flight = 0;
  std::vector<ClientPathSample> paths;
};

struct ServerSample {
  bool serves = false;  // else nothing of it says anything
  bnbd::ExportServerStatistics exports;
  trs::ServerStatistics transport;
};

/// Where NBD clients come in.
struct NbdSample {
  bool serves = false;  // else nothing of it says anything
  bnbd::NbdServiceStatus door;
};

struct ProcessSample {
  uint64_t pid = 0;
  uint64_t cpu_user_ns = 0, cpu_system_ns = 0;
  uint64_t resident_bytes = 0, heap_bytes = 0;
  uint64_t open_fds = 0, max_fds = 0, threads = 0;
  uint64_t started_s = 0;  // since 1970
};
/// Of this process, from /proc and the C library. Reads files: not on a reactor.
ProcessSample sample_process();

struct NodeSample {
  std::string node, role, version, hca;
  uint64_t at_ns = 0;  // the node's clock
  ProcessSample process;
  ServerSample server;
  NbdSample nbd;
  std::vector<DeviceSample> devices;
  /// Behind these devices are more: where those begin; 0: none.
  uint64_t more_from = 0;
  std::vector<SessionSample> sessions;
  std::vector<ExportSample> exports;
  std::vector<ClientSample> clients;
};

/// Which devices are to be in a sample; that which begins at 0 has also what is no device, the
/// devices of this process, and those that are wanted and not mapped yet, none of which counts.
struct SampleRange {
  uint64_t from = 0;
  uint64_t at_most = UINT64_MAX;
};
/// One answer of the control socket (kRpcLineMax) has room for so many devices, were all their
/// buckets in use.
inline constexpr uint64_t kDevicesPerSample = 64;

nlohmann::json to_json_of(const NodeSample& sample);
/// kProtocol says what does not fit. What is accepted has buckets that a histogram has, in order,
/// and three histograms a device; members that are missing are 0, as with a node of another
/// version.
base::Result<NodeSample> sample_of(const nlohmann::json& json);

/// All of a node that runs, by its control socket, in as many calls as that takes. `timeout_ms`:
/// of each.
base::Result<NodeSample> ask_sample(const std::string& node, int timeout_ms, bool any_user);

}  // namespace braid::cli
