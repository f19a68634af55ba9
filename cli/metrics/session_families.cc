#include <array>
#include <string>

#include "cli/metrics/families.h"
#include "trs/connection_statistics.h"

namespace braid::cli {

namespace {

using R = trs::ClientStatistics;
using Traffic = trs::ConnectionStatistics;

constexpr Family<SessionSample> kSession[] = {
    {"braid_session_permits", kGauge, "Requests that may be in flight, as the server has granted.",
     [](const SessionSample& s) { return s.queue_depth; }},
    {"braid_session_requests_in_flight", kGauge, "Requests with a permit that have not ended.",
     [](const SessionSample& s) { return s.all.in_flight; }},
    {"braid_session_requests_held", kGauge, "Of these, those that wait for a path.",
     [](const SessionSample& s) { return s.all.held; }},
    {"braid_session_resent_total", kCounter, "Requests that were sent again on another path.",
     [](const SessionSample& s) { return s.all.resent; }},
    {"braid_session_reconnects_total", kCounter, "Times that a path came back.",
     [](const SessionSample& s) { return s.all.reconnects; }},
    {"braid_session_reconnects_failed_total", kCounter, "Attempts to get a path back that failed.",
     [](const SessionSample& s) { return s.all.reconnects_failed; }},
};

constexpr Family<R> kReactor[] = {
    {"braid_session_reactor_permits", kGauge, "Permits of a reactor, borrowed ones included.",
     [](const R& r) { return r.permits; }},
    {"braid_session_reactor_permits_free", kGauge, "Of these, those that no request has.",
     [](const R& r) { return r.permits_free; }},
    {"braid_session_reactor_permits_lent_total", kCounter, "Permits lent to other reactors.",
     [](const R& r) { return r.permits_lent; }},
    {"braid_session_reactor_permits_borrowed_total", kCounter, "Permits had from other reactors.",
     [](const R& r) { return r.permits_borrowed; }},
    {"braid_session_reactor_requests_in_flight", kGauge, "Requests of a reactor under way.",
     [](const R& r) { return r.in_flight; }},
};

constexpr Family<PathSample> kPathFamilies[] = {
    {"braid_path_reconnects_total", kCounter, "Times that the path came back.",
     [](const PathSample& p) { return p.reconnects; }},
    {"braid_path_reconnects_failed_total", kCounter, "Attempts to get it back that failed.",
     [](const PathSample& p) { return p.reconnects_failed; }},
    {"braid_path_failed_over_total", kCounter, "Requests taken from it to another path.",
     [](const PathSample& p) { return p.failed_over; }},
};

constexpr Family<Traffic> kConnection[] = {
    {"braid_connection_reads_total", kCounter, "Reads answered with success.",
     [](const Traffic& c) { return c.reads; }},
    {"braid_connection_read_bytes_total", kCounter, "Bytes of these reads.",
     [](const Traffic& c) { return c.read_bytes; }},
    {"braid_connection_writes_total", kCounter, "Writes answered with success.",
     [](const Traffic& c) { return c.writes; }},
    {"braid_connection_written_bytes_total", kCounter, "Bytes of these writes.",
     [](const Traffic& c) { return c.write_bytes; }},
    {"braid_connection_errors_total", kCounter, "Requests answered with a refusal.",
     [](const Traffic& c) { return c.errors; }},
    {"braid_connection_moved_total", kCounter,
     "Requests answered on another processor than that from which they were sent.",
     [](const Traffic& c) { return c.moved; }},
    {"braid_connection_requests_in_flight", kGauge, "Requests that are on the wire.",
     [](const Traffic& c) { return c.in_flight; }},
    {"braid_connection_messages_sent_total", kCounter, "Messages sent.",
     [](const Traffic& c) { return c.messages_sent; }},
    {"braid_connection_messages_received_total", kCounter, "Messages received.",
     [](const Traffic& c) { return c.messages_received; }},
};

constexpr size_t kLatencyBounds = Traffic::kLatencyBuckets - 1;  // the last bucket has none

const std::array<std::string, kLatencyBounds>& latency_bound_texts() {
  static const std::array<std::string, kLatencyBounds> kTexts = [] {
    std::array<std::string, kLatencyBounds> made;
    for (size_t i = 0; i < kLatencyBounds; ++i)
      made[i] = seconds_text(trs::latency_bound_us(i) * 1000);
    return made;
  }();
  return kTexts;
}

void write_latency(Exposition& text, const Labels& labels, const Traffic& io) {
  std::array<CumulativeBucket, kLatencyBounds> below;
  uint64_t count = 0;
  for (size_t i = 0; i < kLatencyBounds; ++i) {
    count += io.latency[i];
    below[i] = {latency_bound_texts()[i], count};
  }
  text.histogram(labels, below, count + io.latency[kLatencyBounds], io.latency_sum_ns);
}

struct Things {
  std::vector<Labelled<SessionSample>> sessions;
  std::vector<Labelled<R>> reactors;
  std::vector<Labelled<PathSample>> paths;
  std::vector<Labelled<Traffic>> connections;
};

void add(const std::string& node, const SessionSample& session, Things& things) {
  const Labels labels = Labels("node", node)
                            .add("session", std::to_string(session.number))
                            .add("server", session.server);
  things.sessions.push_back({labels, &session});
  for (size_t i = 0; i < session.reactors.size(); ++i)
    things.reactors.push_back({labels.with("reactor", std::to_string(i)), &session.reactors[i]});
  for (const PathSample& path : session.paths) {
    const Labels of_path = labels.with("path", path.path).add("path_id", std::to_string(path.id));
    things.paths.push_back({of_path, &path});
    for (size_t cid = 0; cid < path.connections.size(); ++cid)
      things.connections.push_back(
          {of_path.with("connection", std::to_string(cid)), &path.connections[cid]});
  }
}

}  // namespace

void write_sessions(Exposition& text, std::span<const NodeSample> nodes) {
  Things things;
  for (const NodeSample& node : nodes)
    for (const SessionSample& session : node.sessions) add(node.node, session, things);
  write_info<SessionSample>(
      text, "braid_session_info", "A session to a server, and whose that is.", things.sessions,
      [](const SessionSample& session, Labels& labels) { labels.add("peer", session.peer); });
  write_states(text, "braid_session_state", "1: it is in this state.", kSessionStates,
               things.sessions);
  write<SessionSample>(text, kSession, things.sessions);
  write<R>(text, kReactor, things.reactors);
  write_info<PathSample>(
      text, "braid_path_info", "A path of a session, and the device or wire by which.",
      things.paths, [](const PathSample& path, Labels& labels) { labels.add("hca", path.hca); });
  write_states(text, "braid_path_state", "1: it is in this state.", kPathStates, things.paths);
  write<PathSample>(text, kPathFamilies, things.paths);
  text.family("braid_path_latency_seconds", MetricType::kHistogram,
              "From a request's sending to its answer, all connections together.");
  for (const Labelled<PathSample>& path : things.paths)
    write_latency(text, path.labels, io_of(*path.of));
  write<Traffic>(text, kConnection, things.connections);
}

}  // namespace braid::cli
