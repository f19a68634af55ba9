#include "bnbd/frontend/nbd_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace braid::bnbd {

using base::Errc;

namespace {

// Rounds of one connection in one turn, so that the others, timers and pollers get theirs.
constexpr int kRoundsPerPoll = 4;
constexpr int kServerEventsMax = 32;
// A socket is tried without being asked for so long after something came or went: a client that
// waits for its answer comes back within some ten microseconds.
constexpr uint64_t kHotNs = 200 * base::kMicrosecond;
// With more of those than this, one epoll_wait per turn is cheaper than a try of each.
constexpr unsigned kTriedMax = 4;
// While the reactor is awake for others, sockets that are not tried are looked at so often.
constexpr uint64_t kLookEveryNs = 20 * base::kMicrosecond;

}  // namespace

void NbdServer::Release::operator()(NbdServer* server) const {
  server->stop();
  if (server->pool_->in_use() == 0) {
    delete server;
  } else {
    server->released_ = true;
  }
}

NbdServer::NbdServer(base::Reactor& reactor, BlockDevice& device, NbdServerOptions options,
                     std::unique_ptr<SlotPool<Slot>> pool, UniqueFd epoll_fd)
    : reactor_(reactor),
      device_(device),
      options_(std::move(options)),
      log_(reactor, reactor.log(), {}),
      pool_(std::move(pool)),
      content_(device.content_memory()),
      shares_(pool_->most(), options_.connections_max),
      epoll_(std::move(epoll_fd)),
      completed_(reactor),
      leave_timer_(
          [](base::Timer& timer) { static_cast<NbdServer*>(timer.context)->end_slow_leavers(); },
          this),
      latency_(options_.latencies ? kLatencyKinds : 0) {
  const auto prepare = [this](Slot& slot) {
    slot.server = this;
    slot.operation.done = &NbdServer::operation_done;
    slot.operation.context = &slot;
    slot.operation.told_later = true;  // by its answer
  };
  pool_->set_owner(prepare, [this] { completed_.notify_all(); });
  watch_.context = this;
  watch_.ready = [](base::Watch& watch) {
    static_cast<NbdServer*>(watch.context)->sockets_ready();
  };
}

NbdServer::~NbdServer() {
  BRAID_ASSERT(stopped_ && pool_->in_use() == 0);
}

base::Result<NbdServer::Ptr> NbdServer::create(base::Reactor& reactor, BlockDevice& device,
                                               NbdServerOptions options,
                                               std::unique_ptr<SlotPool<Slot>> pool,
                                               std::vector<UniqueFd> sockets) {
  UniqueFd epoll_fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_fd.valid()) return base::sys_error(errno, "make an epoll descriptor");
  Ptr server(
      new NbdServer(reactor, device, std::move(options), std::move(pool), std::move(epoll_fd)));
  reactor.add(*server);
  for (UniqueFd& socket : sockets) BRAID_CHECK(server->watch(std::move(socket), {}, {}));
  return server;
}

base::Status NbdServer::watch(UniqueFd socket, NbdTerms terms, std::span<const std::byte> early) {
  auto connection = std::make_unique<Connection>();
  connection->terms = terms;
  connection->terms.read_only = options_.read_only;
  connection->input.begin_with(early);
  connection->emptied.is_now(device_);
  connection->quiet = connection->emptied;
  connection->active_ns = reactor_.now_ns();
  connection->interest = EPOLLIN | EPOLLRDHUP;
  struct epoll_event event = {};
  event.events = connection->interest;  // levels: arming the watch is the last look
  event.data.ptr = connection.get();
  if (::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    return base::sys_error(errno, "watch a socket");
  }
  connection->socket = std::move(socket);
  connections_.push_back(std::move(connection));
  base::add_shared(open_, 1);
  return {};
}

base::Status NbdServer::add(UniqueFd socket, bool structured, std::span<const std::byte> early) {
  if (!taking_ || stopped_) return base::make_error(Errc::kCanceled, "it is being taken away");
  if (open_ >= options_.connections_max && !make_room()) {
    return base::make_error(Errc::kBusy, "{} connections are open, and no more are taken", open_);
  }
  return watch(std::move(socket), {.structured = structured}, early);
}

void NbdServer::sends_no_more(Connection& connection) {
  if (connection.left_ns != 0) return;
  connection.left_ns = std::max<uint64_t>(reactor_.now_ns(), 1);
  base::add_shared(leaving_, 1);
}

/// A process that died far away is one that has closed its sending side, until something is sent to
/// it; and nothing is while the device is away. It shall not keep its place from who comes back.
bool NbdServer::make_room() {
  Connection* oldest = nullptr;
  for (const auto& connection : connections_) {
    if (!connection->socket.valid() || connection->left_ns == 0) continue;
    if (oldest == nullptr || connection->left_ns < oldest->left_ns) oldest = connection.get();
  }
  if (oldest == nullptr) return false;
  end(*oldest, "a client that sends no more made room for another one");
  return true;
}

void NbdServer::take_no_more() {
  taking_ = false;
  for (const auto& connection : connections_) {
    drop_incoming(*connection);
  }
}

void NbdServer::stop() {
  if (stopped_) return;
  stopped_ = true;
  taking_ = false;
  if (watched_) reactor_.io().unwatch(watch_);
  reactor_.remove(*this);
  reactor_.cancel(leave_timer_);
  for (const auto& connection : connections_) {
    if (connection->socket.valid()) end(*connection, nullptr);
  }
  forget_ended();
  // Nobody polls any more, to begin their next parts.
  while (Slot* const slot = parts_.pop_front()) release(*slot);
}

base::Task<void> NbdServer::drained() {
  while (pool_->in_use() != 0 || pool_->growing()) co_await completed_.wait();
}

KernelDeviceStatistics NbdServer::statistics() const {
  using base::read_shared;
  KernelDeviceStatistics all;
  all.requests = read_shared(statistics_.requests);
  all.refused = read_shared(statistics_.refused);
  all.errors = read_shared(statistics_.errors);
  all.lent_reads = read_shared(statistics_.lent_reads);
  all.starved = read_shared(statistics_.starved);
  all.in_flight = pool_->in_use();
  return all;
}

bool NbdServer::is_hot(const Connection& connection) const {
  return reactor_.now_ns() - connection.active_ns < kHotNs;
}

/// A connection that waits for a slot, or for a part of what it brings to be written, receives
/// nothing: its client waits, too.
bool NbdServer::may_receive(const Connection& connection) const {
  const bool writes = connection.incoming != nullptr && connection.incoming->at_device;
  return taking_ && !connection.starved && !writes && !connection.finished && !connection.leaving;
}

/// What can be done without the socket saying so.
bool NbdServer::has_work(const Connection& connection) const {
  if (!connection.socket.valid()) return true;  // to be forgotten
  if (may_send(connection)) return true;
  if (connection.leaving && connection.slots == 0) return true;  // to be ended
  const bool brings = connection.incoming != nullptr && !connection.incoming->at_device &&
                      (connection.finished || !connection.input.empty());
  return taking_ && (brings || may_begin(connection));
}

bool NbdServer::poll() {
  bool worked = continue_parts();
  unsigned tried = 0;
  bool looked_for = false;
  for (const auto& connection : connections_) {
    if (is_hot(*connection)) ++tried;
    looked_for |= !connection->readable || connection->blocked;
  }
  if (looked_for && look_is_due(tried > kTriedMax)) look_at_sockets();
  for (const auto& connection : connections_) {
    if (connection->socket.valid()) worked |= serve(*connection);
    if (tried > kTriedMax || !is_hot(*connection)) connection->readable = false;
  }
  if (some_ended_) forget_ended();
  return worked;
}

bool NbdServer::serve(Connection& connection) {
  bool worked = false;
  // A client that has just been slow to take answers may take more now.
  if (connection.blocked && is_hot(connection)) connection.blocked = false;
  // Whom epoll is to tell of, it must watch for what is wanted now.
  if (connection.blocked || !connection.readable) set_interest(connection);
  if (!connection.socket.valid()) return true;
  for (int round = 0; round < kRoundsPerPoll; ++round) {
    const bool received = receive(connection);
    const bool parsed = parse(connection);
    if (connection.input.empty()) connection.quiet = connection.emptied;
    const bool sent = send(connection);
    worked |= received || parsed || sent;
    if (!connection.socket.valid() || !received || !connection.more) break;
  }
  if (connection.socket.valid() && connection.leaving && connection.slots == 0) {
    end(connection, nullptr);
  }
  return worked;
}

bool NbdServer::look_is_due(bool crowded) const {
  return crowded || reactor_.now_ns() - looked_ns_ >= kLookEveryNs;
}

void NbdServer::look_at_sockets() {
  looked_ns_ = reactor_.now_ns();
  QuietMoment before;
  before.is_now(device_);
  struct epoll_event events[kServerEventsMax];
  const int count = ::epoll_wait(epoll_.fd(), events, kServerEventsMax, 0);
  for (int i = 0; i < count; ++i) {
    auto& connection = *static_cast<Connection*>(events[i].data.ptr);
    if (!connection.socket.valid()) continue;
    const bool over = (events[i].events & (EPOLLHUP | EPOLLERR)) != 0;
    if (over && !may_receive(connection)) {
      end(connection, "the client closed the connection");
      continue;
    }
    const bool ended = (events[i].events & EPOLLRDHUP) != 0;
    if (ended && !may_receive(connection)) sends_no_more(connection);
    if ((events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) connection.readable = true;
    if (over || (events[i].events & EPOLLOUT) != 0) connection.blocked = false;
  }
  if (count < 0 || count == kServerEventsMax) return;  // others may be readable, too
  for (const auto& connection : connections_) {
    const bool asked = (connection->interest & EPOLLIN) != 0;
    if (asked && !connection->readable) connection->emptied = before;
  }
}

void NbdServer::sockets_ready() {
  // Not armed now, so that this costs nothing; arm() watches again.
  watched_ = false;
  reactor_.io().unwatch(watch_);
  look_at_sockets();
}

/// Level-triggered: what is not waited for would wake for nothing.
void NbdServer::set_interest(Connection& connection) {
  uint32_t wanted = 0;
  if (connection.blocked) wanted |= EPOLLOUT;
  if (may_receive(connection)) {
    wanted |= EPOLLIN | EPOLLRDHUP;
  } else if (options_.connections_max > 0 && connection.left_ns == 0) {
    wanted |= EPOLLRDHUP;  // who waits, and is waited for by nobody, makes room
  }
  if (wanted == connection.interest) return;
  struct epoll_event event = {};
  event.events = connection.interest = wanted;
  event.data.ptr = &connection;
  if (::epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, connection.socket.get(), &event) != 0) {
    end(connection, "its socket cannot be watched");
  }
}

bool NbdServer::arm() {
  if (!parts_.empty()) return false;
  for (const auto& connection : connections_) {
    if (has_work(*connection)) return false;
    set_interest(*connection);
  }
  if (!std::exchange(watched_, true)) reactor_.io().watch_readable(epoll_, watch_);
  return true;
}

void NbdServer::end(Connection& connection, const char* reason) {
  const bool took_leave = connection.leaving && !connection.finished;
  if (reason != nullptr && !took_leave && !end_expected_ && !stopped_) {
    log_.warning("nbd connection of {}: {}", options_.name, reason);
  }
  connection.socket.reset();  // leaves the epoll set too
  some_ended_ = true;
  base::subtract_shared(open_, 1);
  if (connection.left_ns != 0) base::subtract_shared(leaving_, 1);
  drop_incoming(connection);
  while (Slot* const unsent = connection.answers.pop_front()) release(*unsent);
  // Operations at the device end without an answer; those of who took its leave end whole.
  shares_.end(std::exchange(connection.slots, 0));
  pool_->for_each([&connection](Slot& slot) {
    if (slot.connection != &connection) return;
    slot.connection = nullptr;
    slot.outlives = connection.leaving;
  });
}

void NbdServer::forget_ended() {
  some_ended_ = false;
  std::erase_if(connections_, [](const auto& connection) { return !connection->socket.valid(); });
}

}  // namespace braid::bnbd
