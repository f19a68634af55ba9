#include "bnbd/frontend/nbd_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace braid::bnbd {

using base::Errc;

namespace {

// Steps of one connection in one turn, so that the others, timers and pollers get theirs.
constexpr int kStepsPerPoll = 64;
constexpr int kEventsMax = 16;

}  // namespace

void NbdServer::Release::operator()(NbdServer* server) const {
  server->stop();
  if (server->pool_->in_use() == 0) {
    delete server;
  } else {
    server->released_ = true;
  }
}

NbdServer::NbdServer(base::Reactor& reactor, BlockDevice& device, const std::string& name,
                     std::unique_ptr<SlotPool<Slot>> pool, UniqueFd epoll_fd, size_t connections)
    : reactor_(reactor),
      device_(device),
      name_(name),
      pool_(std::move(pool)),
      epoll_(std::move(epoll_fd)),
      completed_(reactor),
      connections_(connections) {
  for (Slot& slot : pool_->all()) {
    slot.server = this;
    slot.operation.done = &NbdServer::operation_done;
    slot.operation.context = &slot;
  }
  watch_.context = this;
  watch_.ready = [](base::Watch& watch) {
    static_cast<NbdServer*>(watch.context)->look_at_sockets();
  };
}

NbdServer::~NbdServer() {
  BRAID_ASSERT(stopped_ && pool_->in_use() == 0);
}

base::Result<NbdServer::Ptr> NbdServer::create(base::Reactor& reactor, BlockDevice& device,
                                               const std::string& name,
                                               std::unique_ptr<SlotPool<Slot>> pool,
                                               std::vector<UniqueFd> sockets) {
  UniqueFd epoll_fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_fd.valid()) return base::sys_error(errno, "make an epoll descriptor");
  Ptr server(
      new NbdServer(reactor, device, name, std::move(pool), std::move(epoll_fd), sockets.size()));
  reactor.io().watch_readable(server->epoll_, server->watch_);
  reactor.add(*server);
  for (size_t i = 0; i < sockets.size(); ++i) {
    struct epoll_event event = {};
    // Edges: a step that fails with EAGAIN waits for the next one.
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = i;
    if (::epoll_ctl(server->epoll_.fd(), EPOLL_CTL_ADD, sockets[i].get(), &event) != 0) {
      return base::sys_error(errno, "watch a socket");
    }
    server->connections_[i].socket = std::move(sockets[i]);
    base::add_shared(server->open_, 1);
  }
  return server;
}

void NbdServer::stop() {
  if (stopped_) return;
  stopped_ = true;
  reactor_.io().unwatch(watch_);
  reactor_.remove(*this);
  for (Connection& connection : connections_) {
    if (connection.socket.valid()) end(connection, nullptr);
  }
}

base::Task<void> NbdServer::drained() {
  while (pool_->in_use() != 0) co_await completed_.wait();
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

bool NbdServer::has_work(const Connection& connection) const {
  if (!connection.socket.valid()) return false;
  if (connection.writable && !connection.answers.empty()) return true;
  if (connection.state == Connection::State::kWaiting) return !pool_->empty();
  return connection.readable;
}

bool NbdServer::arm() {
  return std::none_of(connections_.begin(), connections_.end(),
                      [this](const Connection& connection) { return has_work(connection); });
}

bool NbdServer::poll() {
  bool worked = false;
  for (Connection& connection : connections_) {
    for (int i = 0; i < kStepsPerPoll && has_work(connection); ++i) {
      const bool sent = send_step(connection);
      const bool received = receive_step(connection);
      worked |= sent || received;
      if (!sent && !received) break;
    }
  }
  return worked;
}

void NbdServer::look_at_sockets() {
  struct epoll_event events[kEventsMax];
  const int count = ::epoll_wait(epoll_.fd(), events, kEventsMax, 0);
  for (int i = 0; i < count; ++i) {
    Connection& connection = connections_[events[i].data.u64];
    if ((events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) connection.readable = true;
    if ((events[i].events & ~static_cast<uint32_t>(EPOLLIN)) != 0) connection.writable = true;
  }
}

bool NbdServer::receive_step(Connection& connection) {
  if (!connection.socket.valid()) return false;
  switch (connection.state) {
    case Connection::State::kHeader:
      return receive_header(connection);
    case Connection::State::kWaiting:
      return begin_request(connection);
    case Connection::State::kPayload:
    case Connection::State::kSkip:
      return receive_payload(connection);
  }
  return false;
}

size_t NbdServer::receive(Connection& connection, std::byte* to, size_t length) {
  if (!connection.readable) return 0;
  const ssize_t got = ::recv(connection.socket.get(), to, length, MSG_DONTWAIT);
  if (got > 0) return static_cast<size_t>(got);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    connection.readable = errno == EINTR;
  } else {
    end(connection, "the client closed the connection");
  }
  return 0;
}

bool NbdServer::receive_header(Connection& connection) {
  auto& header = connection.header;
  const size_t got = receive(connection, header.data() + connection.received_bytes,
                             header.size() - connection.received_bytes);
  if (got == 0) return false;
  connection.received_bytes += got;
  if (connection.received_bytes < header.size()) return true;
  connection.received_bytes = 0;
  connection.state = Connection::State::kWaiting;
  if (pool_->empty()) base::add_shared(statistics_.starved, 1);
  begin_request(connection);
  return true;
}

bool NbdServer::begin_request(Connection& connection) {
  const NbdVerdict verdict =
      parse_nbd_request(connection.header, device_.info(), pool_->payload_bytes());
  if (verdict.kind == NbdVerdict::Kind::kBroken) return end(connection, verdict.reason), false;
  if (verdict.kind == NbdVerdict::Kind::kDisconnect) return end(connection, nullptr), false;
  Slot* const slot = pool_->acquire();
  if (slot == nullptr) return false;
  base::add_shared(statistics_.requests, 1);
  slot->connection = &connection;
  slot->verdict = verdict;
  const bool runs = verdict.kind == NbdVerdict::Kind::kRun;
  if (!runs) base::add_shared(statistics_.refused, 1);
  if (verdict.payload_bytes != 0) {
    connection.incoming = slot;
    connection.state = runs ? Connection::State::kPayload : Connection::State::kSkip;
    return true;
  }
  connection.state = Connection::State::kHeader;
  if (runs) {
    run(*slot);
  } else {
    answer(*slot, verdict.error);
  }
  return true;
}

bool NbdServer::receive_payload(Connection& connection) {
  Slot& slot = *connection.incoming;
  const bool skips = connection.state == Connection::State::kSkip;
  const size_t left = slot.verdict.payload_bytes - connection.received_bytes;
  // What is skipped may be longer than a payload: it is received over itself.
  std::byte* const to = slot.payload + (skips ? 0 : connection.received_bytes);
  const size_t got = receive(connection, to, std::min<size_t>(left, pool_->payload_bytes()));
  if (got == 0) return false;
  connection.received_bytes += got;
  if (got < left) return true;
  connection.received_bytes = 0;
  connection.incoming = nullptr;
  connection.state = Connection::State::kHeader;
  if (skips) {
    answer(slot, slot.verdict.error);
  } else {
    run(slot);
  }
  return true;
}

void NbdServer::run(Slot& slot) {
  DeviceOp& operation = slot.operation;
  operation.op = slot.verdict.op;
  operation.force_unit_access = slot.verdict.force_unit_access;
  operation.no_unmap = slot.verdict.no_unmap;
  operation.may_lend = slot.verdict.op == BlockOp::kRead;
  operation.offset_bytes = slot.verdict.offset_bytes;
  operation.length_bytes = slot.verdict.length_bytes;
  operation.start(device_);
}

void NbdServer::operation_done(DeviceOp& operation, Errc status) {
  auto& slot = *static_cast<Slot*>(operation.context);
  NbdServer& self = *slot.server;
  if (status != Errc::kOk) base::add_shared(self.statistics_.errors, 1);
  if (operation.lent()) base::add_shared(self.statistics_.lent_reads, 1);
  self.answer(slot, nbd_error(status));
}

void NbdServer::answer(Slot& slot, uint32_t error) {
  if (slot.connection == nullptr) return release(slot);
  const bool data = error == 0 && slot.verdict.op == BlockOp::kRead;
  slot.reply.magic = kNbdReplyMagic;
  slot.reply.error = error;
  slot.reply.cookie = slot.verdict.cookie;
  slot.answer_bytes = sizeof(NbdReply) + (data ? slot.verdict.length_bytes : 0);
  slot.sent_bytes = 0;
  slot.connection->answers.push_back(slot);
}

bool NbdServer::send_step(Connection& connection) {
  if (!connection.socket.valid() || !connection.writable || connection.answers.empty()) {
    return false;
  }
  Slot& slot = *connection.answers.front();
  auto* const reply = reinterpret_cast<std::byte*>(&slot.reply);
  const size_t of_reply = std::min(slot.sent_bytes, sizeof(NbdReply));
  const size_t of_data = slot.sent_bytes - of_reply;
  struct iovec pieces[2] = {
      {reply + of_reply, sizeof(NbdReply) - of_reply},
      {slot.operation.data() + of_data, slot.answer_bytes - sizeof(NbdReply) - of_data}};
  struct msghdr message = {};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  const ssize_t sent = ::sendmsg(connection.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno == EINTR) return true;
    connection.writable = false;
    if (errno != EAGAIN) end(connection, "the client does not take answers any more");
    return false;
  }
  slot.sent_bytes += static_cast<size_t>(sent);
  if (slot.sent_bytes < slot.answer_bytes) return true;
  slot.unlink();
  release(slot);
  return true;
}

void NbdServer::release(Slot& slot) {
  slot.connection = nullptr;
  pool_->release(slot);
  if (pool_->in_use() != 0) return;
  completed_.notify_all();
  if (released_) delete this;
}

void NbdServer::end(Connection& connection, const char* reason) {
  if (reason != nullptr && !end_expected_) {
    reactor_.log().warning("nbd connection of {}: {}", name_, reason);
  }
  connection.socket.reset();  // leaves the epoll set too
  base::subtract_shared(open_, 1);
  if (Slot* const incoming = std::exchange(connection.incoming, nullptr)) release(*incoming);
  while (Slot* const unsent = connection.answers.pop_front()) release(*unsent);
  // Operations at the device end without an answer.
  for (Slot& slot : pool_->all()) {
    if (slot.connection == &connection) slot.connection = nullptr;
  }
}

}  // namespace braid::bnbd
