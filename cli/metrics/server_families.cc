#include <map>
#include <string>

#include "cli/metrics/families.h"

namespace braid::cli {

namespace {

using Served = trs::ServedStatistics;

constexpr Family<ServerSample> kServer[] = {
    {"braid_server_sessions", kGauge, "Clients' sessions, those that begin or end included.",
     [](const ServerSample& s) { return s.transport.sessions; }},
    {"braid_server_sessions_opened_total", kCounter, "Sessions that were opened.",
     [](const ServerSample& s) { return s.transport.sessions_opened; }},
    {"braid_server_sessions_ended_total", kCounter, "Sessions that an operator has ended.",
     [](const ServerSample& s) { return s.exports.sessions_ended; }},
    {"braid_server_half_open_evicted_total", kCounter,
     "Sessions that ended half open, to make room for others.",
     [](const ServerSample& s) { return s.transport.half_open_evicted; }},
    {"braid_server_unproven_paths", kGauge, "Paths whose client has not proved its key.",
     [](const ServerSample& s) { return s.transport.unproven; }},
    {"braid_server_connects_refused_total", kCounter, "Connections that were refused.",
     [](const ServerSample& s) { return s.transport.connects_refused; }},
    {"braid_server_polls_total", kCounter,
     "Looks at connections, whether there was anything or not.",
     [](const ServerSample& s) { return s.transport.polls; }},
    {"braid_server_opens_total", kCounter, "Exports that clients have opened.",
     [](const ServerSample& s) { return s.exports.opened; }},
    {"braid_server_closes_total", kCounter, "Exports that were closed again.",
     [](const ServerSample& s) { return s.exports.closed; }},
    {"braid_server_opens_refused_total", kCounter, "Opens that were refused.",
     [](const ServerSample& s) { return s.exports.opens_refused; }},
    {"braid_server_requests_refused_total", kCounter,
     "Requests that were refused: malformed, out of range, against the mode.",
     [](const ServerSample& s) { return s.exports.requests_refused; }},
    {"braid_server_requests_handed_over_total", kCounter,
     "Requests that came on another reactor than the home.",
     [](const ServerSample& s) { return s.exports.handed_over; }},
    {"braid_server_force_closed_total", kCounter, "Devices that an operator has closed.",
     [](const ServerSample& s) { return s.exports.force_closed; }},
    {"braid_server_resized_total", kCounter, "Exports that got another size.",
     [](const ServerSample& s) { return s.exports.resized; }},
};

constexpr Family<NbdSample> kNbd[] = {
    {"braid_nbd_half_open", kGauge, "NBD clients in the handshake.",
     [](const NbdSample& n) -> uint64_t { return n.door.half_open; }},
    {"braid_nbd_connects_total", kCounter, "Connections of NBD clients.",
     [](const NbdSample& n) { return n.door.accepted; }},
    {"braid_nbd_connects_granted_total", kCounter, "Of these, those that have got an export.",
     [](const NbdSample& n) { return n.door.granted; }},
    {"braid_nbd_connects_refused_total", kCounter,
     "Of these, those that left the handshake without one.",
     [](const NbdSample& n) { return n.door.refused; }},
    {"braid_nbd_connects_timed_out_total", kCounter, "Of the refused, those that were too slow.",
     [](const NbdSample& n) { return n.door.timed_out; }},
};

constexpr Family<ExportSample> kExport[] = {
    {"braid_export_size_bytes", kGauge, "Size.",
     [](const ExportSample& e) { return e.size_bytes; }},
    {"braid_export_reads_total", kCounter, "Reads that have ended well.",
     [](const ExportSample& e) { return e.io.reads; }},
    {"braid_export_read_bytes_total", kCounter, "Bytes of these reads.",
     [](const ExportSample& e) { return e.io.read_bytes; }},
    {"braid_export_writes_total", kCounter, "Writes that have ended well.",
     [](const ExportSample& e) { return e.io.writes; }},
    {"braid_export_written_bytes_total", kCounter, "Bytes of these writes.",
     [](const ExportSample& e) { return e.io.write_bytes; }},
    {"braid_export_flushes_total", kCounter, "Flushes that have ended well.",
     [](const ExportSample& e) { return e.io.flushes; }},
    {"braid_export_discards_total", kCounter, "Discards that have ended well.",
     [](const ExportSample& e) { return e.io.discards; }},
    {"braid_export_write_zeroes_total", kCounter, "Write-zeroes that have ended well.",
     [](const ExportSample& e) { return e.io.write_zeroes; }},
    {"braid_export_zeroes_written_total", kCounter,
     "Write-zeroes done as writes, as the medium knows no better.",
     [](const ExportSample& e) { return e.io.zeroes_written; }},
    {"braid_export_secure_erases_total", kCounter, "Secure erases that have ended well.",
     [](const ExportSample& e) { return e.io.secure_erases; }},
    {"braid_export_errors_total", kCounter, "Requests that have failed.",
     [](const ExportSample& e) { return e.io.errors; }},
    {"braid_export_copies_total", kCounter, "Payloads that were copied.",
     [](const ExportSample& e) { return e.io.copies; }},
};

constexpr Family<ClientSample> kClient[] = {
    {"braid_client_devices", kGauge, "Exports that the client has open.",
     [](const ClientSample& c) { return c.devices; }},
    {"braid_client_requests_in_flight", kGauge, "Requests of the client at the disks.",
     [](const ClientSample& c) { return c.in_flight; }},
    {"braid_client_paths", kGauge, "Paths by which the client comes.",
     [](const ClientSample& c) -> uint64_t { return c.paths.size(); }},
};

constexpr Family<Served> kServed[] = {
    {"braid_client_connection_reads_total", kCounter, "Reads answered with success.",
     [](const Served& s) { return s.reads; }},
    {"braid_client_connection_read_bytes_total", kCounter, "Bytes of these reads.",
     [](const Served& s) { return s.read_bytes; }},
    {"braid_client_connection_writes_total", kCounter, "Writes answered with success.",
     [](const Served& s) { return s.writes; }},
    {"braid_client_connection_written_bytes_total", kCounter, "Bytes of these writes.",
     [](const Served& s) { return s.write_bytes; }},
    {"braid_client_connection_errors_total", kCounter, "Requests answered with a refusal.",
     [](const Served& s) { return s.errors; }},
    {"braid_client_connection_copied_bytes_total", kCounter,
     "Bytes of writes that a chunk guard has copied.",
     [](const Served& s) { return s.copied_bytes; }},
};

/// A server's counters with a label each; `of` gives them.
template <typename Counts>
void write_each(Exposition& text, std::string_view name, std::string_view help,
                const std::vector<Labelled<ServerSample>>& servers, Counts of) {
  text.family(name, kCounter, help);
  for (const Labelled<ServerSample>& server : servers)
    of(*server.of, [&](std::string_view label, std::string_view value, uint64_t count) {
      text.sample(server.labels.with(label, value), count);
    });
}

void write_of_server(Exposition& text, const std::vector<Labelled<ServerSample>>& servers) {
  write<ServerSample>(text, kServer, servers);
  write_each(text, "braid_server_requests_total", "Requests, by the reactor on which they came.",
             servers, [](const ServerSample& server, auto tell) {
               for (size_t i = 0; i < server.exports.requests.size(); ++i)
                 tell("reactor", std::to_string(i), server.exports.requests[i]);
             });
  const auto by_reason = [](const std::map<std::string, uint64_t>& counts, auto tell) {
    for (const auto& [reason, count] : counts) tell("reason", reason, count);
  };
  write_each(text, "braid_server_keys_refused_total",
             "Clients without a proper key, by the reason.", servers,
             [&](const ServerSample& server, auto tell) {
               by_reason(server.transport.keys_refused, tell);
             });
  write_each(
      text, "braid_server_breaches_total",
      "Sessions ended as their client broke the protocol, by what it did.", servers,
      [&](const ServerSample& server, auto tell) { by_reason(server.transport.breaches, tell); });
}

void write_exports(Exposition& text, const std::vector<Labelled<ExportSample>>& exports) {
  write_info<ExportSample>(
      text, "braid_export_info", "An export that is open or named, and what it is.", exports,
      [](const ExportSample& exported, Labels& labels) { labels.add("kind", exported.kind); });
  text.family("braid_export_holders", kGauge, "Sessions that have it open, by their access.");
  for (const Labelled<ExportSample>& exported : exports) {
    const HoldersSample& holders = exported.of->holders;
    text.sample(exported.labels.with("access", "ro"), holders.ro);
    text.sample(exported.labels.with("access", "rw"), holders.rw);
    text.sample(exported.labels.with("access", "migration"), holders.migration);
  }
  write<ExportSample>(text, kExport, exports);
}

/// Two paths may come from the same address, if not from the same port.
std::string path_text(const std::string& peer, std::map<std::string, unsigned>& seen) {
  const unsigned before = seen[peer]++;
  return before == 0 ? peer : peer + "#" + std::to_string(before + 1);
}

void write_clients(Exposition& text, std::span<const NodeSample> nodes) {
  std::vector<Labelled<ClientSample>> clients;
  std::vector<Labelled<Served>> connections;
  for (const NodeSample& node : nodes)
    for (const ClientSample& client : node.clients) {
      const Labels labels = Labels("node", node.node)
                                .add("client", client.name)
                                .add("session", std::to_string(client.number));
      clients.push_back({labels, &client});
      std::map<std::string, unsigned> seen;
      for (const ClientPathSample& path : client.paths) {
        const Labels of_path = labels.with("path", path_text(path.peer, seen));
        for (size_t cid = 0; cid < path.connections.size(); ++cid)
          connections.push_back(
              {of_path.with("connection", std::to_string(cid)), &path.connections[cid]});
      }
    }
  write_info<ClientSample>(text, "braid_client_info", "A client's session: whose, and from where.",
                           clients, [](const ClientSample& client, Labels& labels) {
                             labels.add("peer", client.peer).add("kind", client.kind);
                           });
  write<ClientSample>(text, kClient, clients);
  write<Served>(text, kServed, connections);
}

}  // namespace

void write_server(Exposition& text, std::span<const NodeSample> nodes) {
  std::vector<Labelled<ServerSample>> servers;
  std::vector<Labelled<NbdSample>> doors;
  std::vector<Labelled<ExportSample>> exports;
  for (const NodeSample& node : nodes) {
    if (node.server.serves) servers.push_back({Labels("node", node.node), &node.server});
    if (node.nbd.serves) doors.push_back({Labels("node", node.node), &node.nbd});
    for (const ExportSample& exported : node.exports)
      exports.push_back({Labels("node", node.node).add("export", exported.name), &exported});
  }
  write_of_server(text, servers);
  write<NbdSample>(text, kNbd, doors);
  write_exports(text, exports);
  write_clients(text, nodes);
}

}  // namespace braid::cli
