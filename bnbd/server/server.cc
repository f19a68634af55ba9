// The export server's life: start, sessions that come and go, stop; and what it shows.
#include <algorithm>

#include "bnbd/server/server_impl.h"

namespace braid::bnbd {

using base::Result;

Result<std::unique_ptr<ExportServer>> ExportServer::create(vhca::Device& device,
                                                           ExportServerOptions options) {
  BRAID_TRY(auto server, server::ServerImpl::create(device, std::move(options)));
  return std::unique_ptr<ExportServer>(std::move(server));
}

namespace server {

namespace {

// Lines of the log that clients cause: requests that are refused, and what comes and goes.
constexpr base::LimitedLog::Limits kRefusals{.burst = 10, .per_second = 10};
constexpr base::LimitedLog::Limits kComings{.burst = 200, .per_second = 10};

}  // namespace

Result<std::unique_ptr<ServerImpl>> ServerImpl::create(vhca::Device& device,
                                                       ExportServerOptions options) {
  BRAID_ASSERT(!options.transport.reactors.empty());
  auto server = std::make_unique<ServerImpl>(std::move(options));
  BRAID_CHECK(server->exports_.create_named());
  BRAID_TRY(server->transport_, trs::Server::create(device, server->options_.transport, *server));
  for (const auto& exported : server->exports_.all()) {
    const std::span<std::byte> memory = exported->device->lendable_memory();
    if (memory.empty()) continue;
    BRAID_TRY(exported->lendable,
              server->transport_->register_memory(memory.data(), memory.size()));
  }
  return server;
}

ServerImpl::ServerImpl(ExportServerOptions options)
    : options_(std::move(options)),
      home_(*options_.transport.reactors.front()),
      log_(home_.log().child("server")),
      refusals_(home_, log_, kRefusals),
      comings_(home_, log_, kComings),
      exports_(home_, options_, door_),
      door_(home_, *this) {
  statistics_.requests.resize(options_.transport.reactors.size());
}

ServerImpl::~ServerImpl() = default;

base::Task<base::Status> ServerImpl::stop() {
  const uint64_t began_ns = home_.now_ns();
  exports_.begin_stop();
  const base::Status ended = co_await transport_->stop_within(options_.stop_patience_ns);
  if (ended.ok()) {
    base::Task<bool> flushed = exports_.all_flushed();
    const uint64_t taken_ns = home_.now_ns() - began_ns;
    const uint64_t left_ns =
        options_.stop_patience_ns - std::min(taken_ns, options_.stop_patience_ns);
    co_await home_.with_timeout(std::move(flushed), left_ns);
  }
  const std::string at_disks = unanswered();
  if (ended.ok() && at_disks.empty()) {
    exports_.tell_failures();
    co_return ended;
  }
  if (at_disks.empty()) {
    co_return base::make_error(base::Errc::kTimedOut, "the server cannot stop: {}",
                               ended.error().message());
  }
  co_return base::make_error(base::Errc::kTimedOut,
                             "the server cannot stop: for {} s its disks have not answered {}",
                             options_.stop_patience_ns / base::kSecond, at_disks);
}

/// What disks still have, for people; empty: nothing.
std::string ServerImpl::unanswered() const {
  std::string text;
  const auto add = [&](const SessionDevice& device) {
    if (device.in_flight == 0) return;
    text += fmt::format("{}{} requests of '{}'", text.empty() ? "" : ", ", device.in_flight,
                        device.exported.name);
  };
  for (const auto& session : sessions_) {
    for (const auto& device : session->devices()) add(*device);
    for (const auto& device : session->retired()) add(*device);
  }
  const std::string flushes = exports_.flushing();
  return text + (text.empty() || flushes.empty() ? "" : ", ") + flushes;
}

void ServerImpl::session_opened(trs::ServerSession& session) {
  sessions_.push_back(std::make_unique<Session>(*this, session, options_.transport.reactors,
                                                door_.place_of(session.client())));
  sessions_.back()->number = ++sessions_numbered_;
  session.context = sessions_.back().get();
  door_.set_sessions(sessions_.size());
  comings_.of(session.client())
      .info("session '{}' from {} opened{}", session.name(), session.peer_text(),
            session.braid_peer() ? "" : " (not a Braid client)");
}

void ServerImpl::session_closed(trs::ServerSession& transport) {
  auto* const session = static_cast<Session*>(transport.context);
  transport.context = nullptr;
  comings_.of(session->client())
      .info("session '{}' from {} closed with {} devices open", session->name(), session->peer(),
            session->devices().size());
  while (!session->devices().empty()) release(session->remove(*session->devices().back()));
  BRAID_ASSERT(session->retired().empty());
  std::erase_if(sessions_, [&](const auto& each) { return each.get() == session; });
  door_.set_sessions(sessions_.size());
}

/// The device gives its export back; the last one of a file closes it.
void ServerImpl::release(std::unique_ptr<SessionDevice> device) {
  BRAID_ASSERT(device->in_flight == 0);
  Export& exported = device->exported;
  std::erase(exported.holders, device.get());
  ++statistics_.closed;
  exports_.release(exported);
}

std::vector<ExportStatus> ServerImpl::exports() const {
  std::vector<ExportStatus> all;
  for (const auto& exported : exports_.all()) {
    if (!exported->device) continue;
    ExportStatus status;
    status.name = exported->name;
    status.kind = exported->kind;
    status.info = exported->device->info();
    status.statistics = exported->device->statistics();
    status.cached = is_cached(*exported->device);
    for (const SessionDevice* holder : exported->holders) {
      HolderStatus user;
      user.session = holder->session.name();
      user.peer = holder->session.peer();
      user.mode = wire::to_string(holder->mode);
      user.statistics = holder->statistics;
      status.holders.push_back(std::move(user));
    }
    all.push_back(std::move(status));
  }
  return all;
}

ExportServerStatistics ServerImpl::statistics() const {
  ExportServerStatistics statistics = statistics_;
  statistics.resized = exports_.resized();
  return statistics;
}

}  // namespace server
}  // namespace braid::bnbd
