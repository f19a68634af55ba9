#include "cli/session_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace braid::cli {

using nlohmann::json;

namespace {

json to_json(const bnbd::SessionStatus::Device& device) {
  return {{"export", device.name},
          {"access", device.mode},
          {"open_for_s", device.opened_for_ns / base::kSecond},
          {"in_flight", device.in_flight},
          {"ending", device.ending},
          {"statistics", block_statistics(device.statistics)}};
}

json to_json(const trs::ServedStatistics& s) {
  return {{"reads", s.reads},   {"read_bytes", s.read_bytes},
          {"writes", s.writes}, {"write_bytes", s.write_bytes},
          {"errors", s.errors}, {"copied_bytes", s.copied_bytes}};
}

/// What the client writes is copied before it is looked at, on each of its paths.
bool is_guarded(const bnbd::SessionStatus& session) {
  return !session.chunk_guards.empty() &&
         std::ranges::none_of(session.chunk_guards, [](const auto& way) { return way == "open"; });
}

/// What each path has carried, and each of its connections; 0 carries no I/O.
json path_statistics(const bnbd::SessionStatus& session) {
  json paths = json::array();
  for (size_t i = 0; i < session.path_statistics.size(); ++i) {
    trs::ServedStatistics io;
    json connections = json::array();
    for (size_t cid = 0; cid < session.path_statistics[i].size(); ++cid) {
      const trs::ServedStatistics& one = session.path_statistics[i][cid];
      connections.push_back(to_json(one));
      connections.back()["cid"] = cid;
      if (cid == 0) continue;
      io.reads += one.reads;
      io.read_bytes += one.read_bytes;
      io.writes += one.writes;
      io.write_bytes += one.write_bytes;
      io.errors += one.errors;
      io.copied_bytes += one.copied_bytes;
    }
    paths.push_back(to_json(io));
    paths.back()["peer"] = session.path_peers.at(i);
    paths.back()["connections"] = connections;
  }
  return paths;
}

}  // namespace

json not_held_by_server(const trs::SessionLimits& limits, bool guard_reads) {
  if (limits.braid_peer) return json::array();
  json told = {
      "after a reconnect: whether it is the same disk (the server names no identity)",
      "after a reconnect: whether acknowledged writes since the last flush are there (the "
      "server does not tell that its machine restarted)",
      "after a reconnect: whether another client has written meanwhile (the server does not "
      "tell of a change of writers)",
      "when a path is lost: that what was in flight on it is done once, and that none of its "
      "writes lands after a newer one (the server numbers no requests, and fences no path)",
      "that all data of a read came (the answer does not tell its length)",
      "that a disk's growth is noticed while it is mapped (the server tells its size only when "
      "the disk is opened: after a reconnect, or when it is mapped anew)",
      "that what the server's operator closes stays closed (the server does not tell: the disk "
      "is opened again as after any loss)",
      "who holds a disk that is refused (the server gives an errno)"};
  if (!guard_reads)
    told.push_back(
        "that a read's buffer is out of the server's reach once it is answered (its key stays "
        "valid for as long as the buffer is registered; map --guard-reads copies instead)");
  return told;
}

json not_held_by_client(bool braid_peer, bool guarded) {
  if (braid_peer) return json::array();
  json told = {
      "after a reconnect: that it is the same disk (the client does not look: another content "
      "under the name goes unnoticed)",
      "after a reconnect: that a loss of acknowledged writes is reported (the client does not "
      "look whether this machine restarted)",
      "after a reconnect: that none of its held writes lands over what another client has "
      "written meanwhile (the client claims no tenure, each of its openings is a new one)",
      "when a path is lost: that what was in flight on it is done once (the client numbers no "
      "requests; it sends them again, in their order)",
      "without a path: that its I/O waits (the client fails it at once, and connects again "
      "each 30 s)",
      "when its only cable was away for a few seconds: that its I/O goes on (a connection may "
      "stay stuck while the path counts as up, and nothing here shows it; there, write 1 into the "
      "path's `reconnect` below /sys/devices/virtual/rtrs-client, which fails what is stuck: an "
      "unmap by force alone waits for it)",
      "when it is dead: that its disks are free at once (it is waited for 30 s, and holds them "
      "for so long)",
      "that what is closed here stays closed (the client is not told, and opens its devices "
      "again with its next path)",
      "that it hears of a disk's new size (there, write the sectors into "
      "/sys/block/rnbdN/rnbd/resize)",
      "when a disk is made smaller by force: that it stops using the end (it keeps the old size, "
      "and reads an I/O error there)",
      "that zeroes need not be sent (it does not ask for write-zeroes: they come as data)",
      "that it is told why it is refused, or by whom a disk is held (it gets an errno)",
      "that --reactors spreads its connections (it does not say which permit goes by which, so "
      "one thread serves them all)"};
  if (!guarded)
    told.push_back(
        "that it cannot change data which was checked already (the keys of its chunks stay "
        "valid; serve --chunk-guard copies what it wrote first)");
  return told;
}

const char* news_text(bool braid_peer, bool notices) {
  return !braid_peer ? "none" : notices ? "pushed" : "asked for";
}

json block_statistics(const bnbd::BlockStatistics& s) {
  return {{"reads", s.reads},
          {"read_bytes", s.read_bytes},
          {"writes", s.writes},
          {"write_bytes", s.write_bytes},
          {"flushes", s.flushes},
          {"discards", s.discards},
          {"write_zeroes", s.write_zeroes},
          {"secure_erases", s.secure_erases},
          {"errors", s.errors},
          {"copies", s.copies}};
}

json client_session(const bnbd::SessionStatus& session) {
  json devices = json::array();
  for (const bnbd::SessionStatus::Device& device : session.devices)
    devices.push_back(to_json(device));
  return {{"name", session.name},
          {"peer", session.peer},
          {"paths", session.path_peers},
          {"braid", session.braid_peer},
          {"news", news_text(session.braid_peer, session.takes_notices)},
          {"not_held", not_held_by_client(session.braid_peer, is_guarded(session))},
          {"key", session.key.empty() ? json(nullptr) : json(session.key)},
          {"chunk_guards", session.chunk_guards},
          {"path_statistics", path_statistics(session)},
          {"open_for_s", session.opened_for_ns / base::kSecond},
          {"devices", devices}};
}

}  // namespace braid::cli
