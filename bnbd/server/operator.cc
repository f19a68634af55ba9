// What an operator asks of the server: who is there, take a device away, change a size.
#include "bnbd/server/server_impl.h"

namespace braid::bnbd::server {

using base::Errc;
using base::make_error;
using base::Result;

base::Status ExportTable::check_revoked(const Export& from, const std::string& session) const {
  const bool found = revoked_.contains(from.device->info().identity, session) ||
                     revoked_names_.contains(from.name, session);
  if (!found) return {};
  return revoked(from.name);
}

base::Error ExportTable::revoked(const std::string& export_name) {
  return make_error(Errc::kCanceled, "the server's operator has closed '{}'", export_name);
}

void ExportTable::revoke(const Export& from, const std::string& session) {
  revoked_.add(from.device->info().identity, session);
}

void ExportTable::revoke_name(const std::string& export_name, const std::string& session) {
  revoked_names_.add(export_name, session);
}

void ExportTable::forgive(const Export& from, const std::string& session) {
  revoked_.remove(from.device->info().identity, session);
  revoked_names_.remove(from.name, session);
}

SessionStatus ServerImpl::describe(Session& session) {
  SessionStatus status;
  status.number = session.number;
  status.name = session.name();
  status.peer = session.peer();
  status.path_peers = session.transport().path_peers();
  for (const trs::ChunkGuard guard : session.transport().path_guards())
    status.chunk_guards.emplace_back(to_string(guard));
  status.path_statistics = session.transport().path_statistics();
  status.braid_peer = session.braid_peer();
  status.takes_notices = session.transport().takes_notices();
  status.key = session.key_name();
  const auto add = [&](const SessionDevice& device, bool ending) {
    const uint64_t now_ns = device.exported.table.now_ns();
    status.devices.push_back({device.exported.name, std::string(wire::to_string(device.mode)),
                              now_ns - device.opened_ns, device.in_flight, ending,
                              device.statistics});
  };
  for (const auto& device : session.devices()) add(*device, false);
  for (const auto& device : session.retired()) add(*device, true);
  return status;
}

std::vector<SessionStatus> ServerImpl::session_statuses() const {
  std::vector<SessionStatus> all;
  for (const auto& session : sessions_) {
    all.push_back(describe(*session));
    all.back().opened_for_ns = home_.now_ns() - session->opened_ns;
  }
  return all;
}

/// What is being opened counts as open: its client would have it in a moment.
unsigned ServerImpl::take_openings(Session& session, const std::string& export_name) {
  const std::vector<Openings::Wish*> wishes = session.openings().wishes(export_name);
  for (Openings::Wish* wish : wishes) {
    log_.warning("the operator takes '{}' from session '{}' ({}), which is opening it",
                 wish->export_name, session.name(), session.peer());
    ++statistics_.force_closed;
    exports_.revoke_name(wish->export_name, session.name());
    wish->taken = true;
  }
  return static_cast<unsigned>(wishes.size());
}

unsigned ServerImpl::take_devices(Session& session, const std::string& export_name) {
  std::vector<SessionDevice*> found;
  for (const auto& device : session.devices()) {
    const bool fits = export_name.empty() || device->exported.name == export_name;
    if (fits) found.push_back(device.get());
  }
  for (SessionDevice* device : found) force_close(session, *device);
  return static_cast<unsigned>(found.size()) + take_openings(session, export_name);
}

Result<ForceClosed> ServerImpl::force_close(const ForceClose& what) {
  if (what.export_name.empty() && what.session.empty()) {
    return make_error(Errc::kInvalid, "name an export, a session, or both");
  }
  ForceClosed closed;
  bool ending = false;
  for (const auto& session : sessions_) {
    if (!what.session.empty() && session->name() != what.session) continue;
    const unsigned devices = take_devices(*session, what.export_name);
    closed.devices += devices;
    if (!what.export_name.empty()) continue;
    if (!may_end_transport(session->braid_peer(), devices)) {
      ++closed.kept;
    } else if (session->transport().end("the operator has closed it")) {
      ++closed.sessions;
    } else {
      ending = true;
    }
  }
  statistics_.sessions_ended += closed.sessions;
  if (closed.devices + closed.sessions > 0) return closed;
  if (ending) {
    return make_error(Errc::kBusy,
                      "session '{}' is ending already: what is at its disks has not ended yet",
                      what.session);
  }
  if (what.export_name.empty()) {
    return make_error(Errc::kNotFound, "there is no session '{}'", what.session);
  }
  return make_error(Errc::kNotFound, "{}{} has '{}' open",
                    what.session.empty() ? "nobody" : "no session ", what.session,
                    what.export_name);
}

void ServerImpl::force_close(Session& session, SessionDevice& device) {
  log_.warning("the operator takes '{}' from session '{}' ({}), with {} requests at its disk",
               device.exported.name, session.name(), session.peer(), device.in_flight);
  ++statistics_.force_closed;
  exports_.revoke(device.exported, session.name());
  session.tell_closed(device.id);
  session.retire(device);
  end_retired(session, device);
}

base::Task<Result<uint64_t>> ServerImpl::resize(std::string name, uint64_t size_bytes, bool force) {
  return exports_.resize(std::move(name), size_bytes, force);
}

}  // namespace braid::bnbd::server
