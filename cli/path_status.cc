#include "cli/path_status.h"

#include <nlohmann/json.hpp>
#include <numeric>

namespace braid::cli {

using nlohmann::json;
using trs::ConnectionStatistics;

namespace {

/// The end of the bucket in which the percentile lies; null: nothing was answered yet.
json percentile_us(const ConnectionStatistics& s, uint64_t percent) {
  const uint64_t all = std::accumulate(s.latency.begin(), s.latency.end(), uint64_t{0});
  if (all == 0) return nullptr;
  const uint64_t wanted = (all * percent + 99) / 100;
  uint64_t seen = 0;
  for (size_t i = 0; i < s.latency.size(); ++i) {
    seen += s.latency[i];
    if (seen >= wanted) return uint64_t{1} << i;
  }
  return nullptr;
}

void add(ConnectionStatistics& to, const ConnectionStatistics& s) {
  to.reads += s.reads;
  to.read_bytes += s.read_bytes;
  to.writes += s.writes;
  to.write_bytes += s.write_bytes;
  to.in_flight += s.in_flight;
  to.errors += s.errors;
  to.messages_sent += s.messages_sent;
  to.messages_received += s.messages_received;
  for (size_t i = 0; i < s.latency.size(); ++i) to.latency[i] += s.latency[i];
}

json to_json(const ConnectionStatistics& s) {
  return {{"reads", s.reads},
          {"read_bytes", s.read_bytes},
          {"writes", s.writes},
          {"write_bytes", s.write_bytes},
          {"in_flight", s.in_flight},
          {"errors", s.errors},
          {"messages_sent", s.messages_sent},
          {"messages_received", s.messages_received},
          {"p50_us", percentile_us(s, 50)},
          {"p99_us", percentile_us(s, 99)}};
}

}  // namespace

json path_status(const trs::PathStatus& status, const PathSpec& spec) {
  ConnectionStatistics io;  // connection 0 carries no I/O
  json connections = json::array();
  for (size_t cid = 0; cid < status.connections.size(); ++cid) {
    if (cid > 0) add(io, status.connections[cid]);
    connections.push_back(to_json(status.connections[cid]));
    connections.back()["cid"] = cid;
  }
  json path = to_json(io);
  path.update({{"id", status.id},
               {"path", path_text(spec)},
               {"device", status.device},
               {"state", status.state},
               {"connected", status.connected},
               {"why", status.why},
               {"reconnects", status.reconnects},
               {"reconnects_failed", status.reconnects_failed},
               {"failed_over", status.failed_over},
               {"connections", connections}});
  return path;
}

}  // namespace braid::cli
