#include "vhca/soft/inhost/channel.h"

#include <array>

#include "base/log.h"

namespace braid::vhca::soft::inhost {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;

namespace {
// An honest peer announces all its segments before its own handshake message, and may retire those
// that go meanwhile. Each announcement holds a descriptor.
constexpr size_t kEarlyMax = 2 * kSegmentsMax;
}  // namespace

Result<Received> receive_cm_message(base::LocalSocket& socket) {
  std::array<std::byte, kCmMessageMax> buffer;
  Received received;
  BRAID_TRY(const size_t length, socket.receive(buffer, received.handles));
  BRAID_TRY(received.message,
            parse_cm_message(std::span(buffer).first(length), received.handles.size()));
  return received;
}

Channel::Channel(base::Reactor& reactor, std::unique_ptr<base::LocalSocket> socket)
    : reactor_(reactor), identity_(socket->peer()), changed_(reactor), socket_(std::move(socket)) {
  watch_.ready = &Channel::readable;
  watch_.context = this;
}

Channel::~Channel() {
  BRAID_ASSERT(!watching_);
}

void Channel::start() {
  const std::lock_guard lock(socket_mutex_);
  reactor_.io().watch_readable(socket_->handle(), watch_);
  watching_ = true;
}

void Channel::shut_down() {
  settled_ = true;
  end_callback_ = nullptr;
  if (watching_) reactor_.io().unwatch(watch_);
  watching_ = false;
  const CmMessage goodbye{.kind = CmKind::kDisconnect};
  (void)send(goodbye);
  const std::lock_guard lock(socket_mutex_);
  socket_.reset();
  peer_.reset();
  early_.clear();
  ended_.store(true, std::memory_order_release);
}

Task<Result<Received>> Channel::handshake_message() {
  for (;;) {
    {
      const std::lock_guard lock(socket_mutex_);
      if (handshake_) co_return std::move(*std::exchange(handshake_, std::nullopt));
      if (ended()) co_return make_error(Errc::kDisconnected, "{}", end_reason_);
    }
    co_await changed_.wait();
  }
}

Task<Status> Channel::ready() {
  for (;;) {
    {
      const std::lock_guard lock(socket_mutex_);
      if (ready_) co_return base::ok_status();
      if (ended()) co_return make_error(Errc::kDisconnected, "{}", end_reason_);
    }
    co_await changed_.wait();
  }
}

Status Channel::attach(std::shared_ptr<PeerDevice> peer) {
  const std::lock_guard lock(socket_mutex_);
  peer_ = std::move(peer);
  for (Received& received : std::exchange(early_, {})) BRAID_CHECK(announcement_locked(received));
  return {};
}

void Channel::set_user(ChannelUser* user) {
  const std::lock_guard lock(user_mutex_);
  user_ = user;
}

void Channel::forget_user() {
  const std::lock_guard lock(user_mutex_);
  user_ = nullptr;
}

void Channel::disconnect_user() {
  const std::lock_guard lock(user_mutex_);
  if (user_ != nullptr) user_->disconnect();
}

Status Channel::send(const CmMessage& message, std::span<const base::Handle* const> handles) {
  const std::vector<std::byte> datagram = encode_cm_message(message);
  const std::lock_guard lock(socket_mutex_);
  if (!socket_) return make_error(Errc::kDisconnected, "the connection is closed");
  return socket_->send(datagram, handles);
}

bool Channel::read_announcements() {
  const std::lock_guard lock(socket_mutex_);
  return read_locked();
}

bool Channel::read_locked() {
  for (int read = 0; socket_ && !ended(); ++read) {
    if (read == kMessagesPerTurn) return false;
    auto received = receive_cm_message(*socket_);
    if (received.code() == Errc::kWouldBlock) return true;
    if (!received.ok()) {
      const bool hung_up = received.code() == Errc::kDisconnected;
      end_locked(hung_up ? "the peer process is gone" : received.error().message());
    } else if (Status taken = take_locked(std::move(received).value()); !taken.ok()) {
      end_locked(taken.error().message());
    }
  }
  return true;
}

Status Channel::take_locked(Received received) {
  switch (received.message.kind) {
    case CmKind::kRequest:
    case CmKind::kReply:
    case CmKind::kReject:
      if (handshake_ || peer_) {
        return make_error(Errc::kProtocol, "a second handshake message on one connection");
      }
      handshake_ = std::move(received);
      return {};
    case CmKind::kReady:
      ready_ = true;
      return {};
    case CmKind::kSegment:
    case CmKind::kRetire:
      if (peer_) return announcement_locked(received);
      if (early_.size() >= kEarlyMax) {
        return make_error(Errc::kProtocol, "more than {} announcements before the handshake",
                          kEarlyMax);
      }
      early_.push_back(std::move(received));
      return {};
    case CmKind::kDisconnect:
      in_order_ = true;
      end_locked("the peer disconnected");
      return {};
  }
  return {};
}

Status Channel::announcement_locked(Received& received) {
  const CmSegment& segment = received.message.segment;
  if (received.message.kind == CmKind::kSegment) {
    return peer_->add_segment(segment, std::move(received.handles.front()));
  }
  peer_->retire_segment(segment.id);
  return {};
}

void Channel::end_locked(const std::string& reason) {
  if (ended()) return;
  end_reason_ = reason;
  ended_.store(true, std::memory_order_release);
}

void Channel::fail(const std::string& reason) {
  {
    const std::lock_guard lock(socket_mutex_);
    end_locked(reason);
  }
  reactor_.post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->settle();
  });
}

void Channel::readable(base::Watch& watch) {
  // The callback may let go of the last owner.
  const auto self = static_cast<Channel*>(watch.context)->shared_from_this();
  (void)self->read_announcements();
  self->settle();
}

/// What is to be done on the reactor after something was read.
void Channel::settle() {
  std::shared_ptr<PeerDevice> peer;
  {
    const std::lock_guard lock(socket_mutex_);
    peer = peer_;
  }
  if (peer) peer->unmap_retired();
  changed_.notify_all();
  if (!ended() || settled_) return;
  settled_ = true;
  if (watching_) reactor_.io().unwatch(watch_);
  watching_ = false;
  reactor_.log().debug("connection to process {} ends: {}", identity_.pid, end_reason_);
  {
    const std::lock_guard lock(socket_mutex_);
    socket_.reset();  // tells the peer as well, if it was this side that gave up
  }
  {
    const std::lock_guard lock(user_mutex_);
    if (user_ != nullptr) user_->peer_gone();
  }
  if (end_callback_) std::exchange(end_callback_, nullptr)();
}

void Channel::on_end(std::function<void()> callback) {
  if (settled_ && ended()) return callback();
  end_callback_ = std::move(callback);
}

}  // namespace braid::vhca::soft::inhost
