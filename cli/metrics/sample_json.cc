// A sample as JSON and back: what `braid metrics` and `braid top` get from a node.
#include <nlohmann/json.hpp>

#include "cli/metrics/sample.h"

namespace braid::bnbd {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(BlockStatistics, reads, read_bytes, writes,
                                                write_bytes, flushes, discards, write_zeroes,
                                                secure_erases, errors, copies, lent, zeroes_written)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FilterCounters, requests, held, held_ns, holding,
                                                failed, verified, mismatches, unknown, changing,
                                                partial, learned, memory_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(KernelDeviceStatistics, requests, refused, errors,
                                                lent_reads, starved, in_flight)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NbdServiceStatus, half_open, accepted, granted,
                                                refused, timed_out)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ExportServerStatistics, opened, closed,
                                                opens_refused, requests_refused, handed_over,
                                                requests, force_closed, sessions_ended, resized)
}  // namespace braid::bnbd

namespace braid::trs {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ClientStatistics, reads, read_bytes, writes,
                                                write_bytes, in_flight, resent, held, reconnects,
                                                reconnects_failed, messages_sent, messages_received,
                                                permits, permits_free, permits_lent,
                                                permits_borrowed)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ConnectionStatistics, reads, read_bytes, writes,
                                                write_bytes, in_flight, messages_sent,
                                                messages_received, latency, latency_sum_ns, errors,
                                                moved)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ServedStatistics, reads, read_bytes, writes,
                                                write_bytes, errors, copied_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ServerStatistics, sessions, sessions_opened,
                                                half_open_evicted, unproven, connects_refused,
                                                polls, keys_refused, breaches)
}  // namespace braid::trs

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;
using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(HistogramSample, buckets, sum_ns)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FilterSample, kind, spec, done)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DeviceSample, name, path, target, backend, server,
                                                session, state, kernel, kernel_alive, gave_up,
                                                size_bytes, in_progress, waiting, sent, reopened,
                                                losses, flushes_failed, io, filters, of_kernel,
                                                latency)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PathSample, id, path, hca, state, reconnects,
                                                reconnects_failed, failed_over, connections)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SessionSample, number, server, peer, state,
                                                queue_depth, all, reactors, paths)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(HoldersSample, ro, rw, migration)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ExportSample, name, kind, size_bytes, holders, io)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ClientPathSample, peer, connections)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ClientSample, number, name, peer, kind, devices,
                                                in_flight, paths)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ServerSample, serves, exports, transport)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NbdSample, serves, door)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ProcessSample, pid, cpu_user_ns, cpu_system_ns,
                                                resident_bytes, heap_bytes, open_fds, max_fds,
                                                threads, started_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeSample, node, role, version, hca, at_ns,
                                                process, server, nbd, devices, more_from, sessions,
                                                exports, clients)

namespace {

/// The library would turn other numbers into some unsigned one. As deep as a message may be.
bool all_unsigned(const json& value) {
  if (value.is_number()) return value.is_number_unsigned();
  if (!value.is_structured()) return true;
  for (const json& one : value)
    if (!all_unsigned(one)) return false;
  return true;
}

Status check(const DeviceSample& device) {
  for (const HistogramSample& histogram : device.latency) {
    uint64_t next = 0;
    for (const auto& [index, count] : histogram.buckets) {
      if (index < next || index >= bnbd::LatencyHistogram::kBuckets)
        return make_error(Errc::kProtocol, "a histogram with a bucket {} behind {} others", index,
                          next);
      next = uint64_t{index} + 1;
    }
  }
  return {};
}

}  // namespace

json to_json_of(const NodeSample& sample) {
  return sample;
}

Result<NodeSample> sample_of(const json& value) {
  if (!value.is_object()) return make_error(Errc::kProtocol, "a sample must be an object");
  if (!all_unsigned(value))
    return make_error(Errc::kProtocol, "a sample with a number below 0, or that is not whole");
  NodeSample sample;
  try {
    sample = value.get<NodeSample>();
  } catch (const json::exception& wrong) {
    return make_error(Errc::kProtocol, "a sample in another shape: {}", wrong.what());
  }
  for (const DeviceSample& device : sample.devices) BRAID_CHECK(check(device));
  return sample;
}

}  // namespace braid::cli
