#include "cli/path_status.h"

#include <nlohmann/json.hpp>

#include "trs/connection_statistics.h"

namespace braid::cli {

using nlohmann::json;
using trs::ConnectionStatistics;

namespace {

/// Null: nothing was answered yet.
json percentile_us(const ConnectionStatistics& s, unsigned percent) {
  const uint64_t us = trs::latency_percentile_us(s, percent);
  return us == 0 ? json(nullptr) : json(us);
}

/// counts[i] took less than bounds[i], and not less than half of it; the last count has no bound.
json histogram_us(const ConnectionStatistics& s) {
  json bounds = json::array();
  for (size_t i = 0; i + 1 < s.latency.size(); ++i) bounds.push_back(trs::latency_bound_us(i));
  return {{"bounds", bounds}, {"counts", s.latency}};
}

void add(ConnectionStatistics& to, const ConnectionStatistics& s) {
  to.reads += s.reads;
  to.read_bytes += s.read_bytes;
  to.writes += s.writes;
  to.write_bytes += s.write_bytes;
  to.in_flight += s.in_flight;
  to.errors += s.errors;
  to.moved += s.moved;
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
          {"moved", s.moved},
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
    connections.back()["latency_us"] = histogram_us(status.connections[cid]);
  }
  json path = to_json(io);
  path["latency_us"] = histogram_us(io);
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
