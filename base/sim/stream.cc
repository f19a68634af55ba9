#include "base/sim/stream.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "base/endian.h"
#include "base/sim/host.h"
#include "base/sim/world.h"

namespace braid::base::sim {
namespace {

enum class Segment : uint8_t { kAccepted = 1, kData = 2, kRead = 3, kEnd = 4 };

constexpr uint64_t kWindowMinBytes = 4 * 1024;
constexpr uint64_t kWindowMaxBytes = 256 * 1024;
// What the peer is told of at once; less than a full window waits for.
constexpr uint64_t kReadToldBytes = kWindowMinBytes / 4;
constexpr uint64_t kSegmentsPerSendMax = 3;

/// As Linux repeats what is lost: after 200 ms, then after twice the time, up to two minutes.
constexpr RetryBudget repetitions(uint64_t user_timeout_ns) {
  return {.ack_timeout_ns = 200 * kMillisecond,
          .retry_count = UINT_MAX,
          .doubled_up_to_ns = 120 * kSecond,
          .give_up_ns = user_timeout_ns};
}

constexpr RetryBudget kFirstBudget = repetitions(4 * kSecond);  // before anybody says otherwise

/// With room for `extra` bytes behind its kind.
std::vector<std::byte> segment(Segment kind, size_t extra = 0) {
  std::vector<std::byte> message;
  message.reserve(1 + extra);
  message.push_back(static_cast<std::byte>(kind));
  return message;
}

/// Takes bytes from pieces, from the first one on.
class Gather {
 public:
  explicit Gather(std::span<const iovec> pieces) : pieces_(pieces) {}
  void take(std::vector<std::byte>& to, size_t count) {
    while (count > 0) {
      const iovec& piece = pieces_.front();
      const size_t taken = std::min(piece.iov_len - at_, count);
      const auto* const from = static_cast<const std::byte*>(piece.iov_base) + at_;
      to.insert(to.end(), from, from + taken);
      count -= taken;
      at_ += taken;
      if (at_ < piece.iov_len) continue;
      pieces_ = pieces_.subspan(1);
      at_ = 0;
    }
  }

 private:
  std::span<const iovec> pieces_;
  size_t at_ = 0;  // in the first one
};

size_t total_bytes(std::span<const iovec> pieces) {
  size_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  return total;
}

}  // namespace

void set_ready(SimHost& host, EventState& state, bool ready) {
  state.set = ready;
  if (!ready || host.dead()) return;
  for (const EventState::Watcher& watcher : state.watchers)
    if (watcher.slot->queue != nullptr) watcher.slot->queue->event_signalled(*watcher.watch);
}

// --- SimStream

SimStream::SimStream(SimHost& host)
    : host_(host), window_(host.world().random().between(kWindowMinBytes, kWindowMaxBytes)) {}

Status SimStream::connect(const std::string& local_ip, const SocketAddress& peer) {
  peer_ = peer;
  BRAID_TRY(channel_, host_.fabric().connect(host_, local_ip, {.ip = peer.ip, .port = peer.port},
                                             kFirstBudget, *this, {}));
  return ok_status();
}

void SimStream::accepted(std::unique_ptr<Channel> channel) {
  channel_ = std::move(channel);
  const FabricAddress from = channel_->peer();
  peer_ = {.ip = from.ip, .port = from.port};
  connected_ = true;
  channel_->set_handler(this);
  channel_->set_retry_budget(kFirstBudget);
  transmit(segment(Segment::kAccepted));
  update_readiness();
}

void SimStream::close(std::shared_ptr<SimStream> stream) {
  SimHost& host = stream->host_;
  if (host.dead() || stream->drained()) {
    stream->channel_.reset();
    return;
  }
  host.linger(std::move(stream));
}

Errc SimStream::connected() const {
  if (host_.dead()) return Errc::kDead;
  if (failure_ != Errc::kOk && !connected_) return failure_;
  return connected_ ? Errc::kOk : Errc::kWouldBlock;
}

void SimStream::transmit(std::vector<std::byte> message) {
  if (channel_ == nullptr || channel_->broken()) return;
  ++unanswered_;
  channel_->send(std::move(message));
}

Errc SimStream::send(std::span<const iovec> pieces, size_t& sent) {
  if (host_.dead()) return Errc::kDead;
  if (failure_ != Errc::kOk) return failure_;
  if (send_ended_) return Errc::kDisconnected;
  if (!connected_ || full()) {
    was_full_ = connected_;
    if (connected_) watch_window();
    set_ready(host_, *writable, false);
    return Errc::kWouldBlock;
  }
  was_full_ = false;
  uint64_t count = std::min<uint64_t>(total_bytes(pieces), room());
  SimRandom& random = host_.world().random();
  if (random.one_in(4)) count = random.between(1, count);
  sent = count;
  host_.count_stream_call(count);
  ahead_ += count;
  Gather bytes(pieces);
  uint64_t rest = count;
  for (uint64_t left = random.between(1, kSegmentsPerSendMax); rest > 0; --left) {
    const uint64_t size = left <= 1 ? rest : random.between(1, rest);
    std::vector<std::byte> message = segment(Segment::kData, size);
    bytes.take(message, size);
    transmit(std::move(message));
    rest -= size;
  }
  update_readiness();
  return Errc::kOk;
}

Errc SimStream::receive(std::span<const iovec> pieces, size_t& received) {
  if (host_.dead()) return Errc::kDead;
  if (unread() == 0) {
    if (failure_ != Errc::kOk) return failure_;
    if (peer_ended_ || receive_ended_) return Errc::kDisconnected;
    update_readiness();
    host_.count_stream_call_in_vain();
    return Errc::kWouldBlock;
  }
  size_t count = std::min(total_bytes(pieces), unread());
  SimRandom& random = host_.world().random();
  if (random.one_in(4)) count = random.between(1, count);
  received = count;
  host_.count_stream_call(count);
  for (const iovec& piece : pieces) {
    const size_t taken = std::min<size_t>(piece.iov_len, count);
    if (taken > 0) std::memcpy(piece.iov_base, received_.data() + read_to_, taken);
    read_to_ += taken;
    count -= taken;
  }
  if (unread() == 0) {
    received_.clear();
    read_to_ = 0;
  }
  read_untold_ += received;
  if (failure_ == Errc::kOk && read_untold_ >= kReadToldBytes) {
    std::vector<std::byte> message = segment(Segment::kRead, sizeof(le64));
    const le64 told = std::exchange(read_untold_, 0);
    const auto* const from = reinterpret_cast<const std::byte*>(&told);
    message.insert(message.end(), from, from + sizeof told);
    transmit(std::move(message));
  }
  update_readiness();
  return Errc::kOk;
}

void SimStream::shut_down_send() {
  if (std::exchange(send_ended_, true) || host_.dead() || failure_ != Errc::kOk) return;
  transmit(segment(Segment::kEnd));
}

void SimStream::shut_down() {
  shut_down_send();
  receive_ended_ = true;
  update_readiness();
}

void SimStream::set_user_timeout(uint64_t timeout_ns) {
  if (channel_ == nullptr) return;
  user_timeout_ns_ =
      timeout_ns == 0 ? kNever : std::max(timeout_ns, StreamSocket::kUserTimeoutMinNs);
  channel_->set_retry_budget(repetitions(user_timeout_ns_));
}

/// Data waits and the window is full: unless the peer's process reads within the user time-out, the
/// connection is broken.
void SimStream::watch_window() {
  if (window_watched_ || user_timeout_ns_ == kNever) return;
  window_watched_ = true;
  host_.world().after(user_timeout_ns_, [stream = weak_from_this(), read = told_read_] {
    const std::shared_ptr<SimStream> self = stream.lock();
    if (self == nullptr || self->host_.dead() || self->over()) return;
    self->window_watched_ = false;
    if (!self->full()) return;
    if (self->told_read_ != read) return self->watch_window();
    self->channel_.reset();  // the peer hears of it
    self->broken(Errc::kTimedOut);
  });
}

SocketAddress SimStream::local() const {
  if (channel_ == nullptr) return {};
  const FabricAddress at = channel_->local();
  return {.ip = at.ip, .port = at.port};
}

void SimStream::update_readiness() {
  const bool failed = failure_ != Errc::kOk;
  set_ready(host_, *readable, failed || peer_ended_ || receive_ended_ || unread() > 0);
  set_ready(host_, *writable, failed || (connected_ && !full()));
}

void SimStream::request(std::span<const std::byte> message, std::vector<std::byte>&) {
  if (message.empty()) return;
  switch (static_cast<Segment>(message[0])) {
    case Segment::kAccepted:
      connected_ = true;
      break;
    case Segment::kData:
      if (receive_ended_) break;
      // What was read goes when it is the larger part: the rest is moved.
      if (read_to_ > unread()) {
        received_.erase(received_.begin(), received_.begin() + static_cast<ptrdiff_t>(read_to_));
        read_to_ = 0;
      }
      received_.insert(received_.end(), message.begin() + 1, message.end());
      break;
    case Segment::kRead: {
      le64 read;
      std::memcpy(&read, message.data() + 1, sizeof read);
      ahead_ -= read;
      told_read_ += read;
      break;
    }
    case Segment::kEnd:
      peer_ended_ = true;
      break;
  }
  update_readiness();
}

void SimStream::answered(std::span<const std::byte>) {
  --unanswered_;
  host_.end_lingering();
}

void SimStream::broken(Errc why) {
  failure_ = why;
  update_readiness();
  host_.end_lingering();
}

// --- SimStreamListener

Result<std::unique_ptr<StreamListener>> SimStreamListener::create(SimHost& host,
                                                                  const SocketAddress& address,
                                                                  int backlog) {
  std::unique_ptr<SimStreamListener> listener(
      new SimStreamListener(host, static_cast<size_t>(std::max(backlog, 1))));
  BRAID_TRY(listener->listener_,
            host.fabric().listen(host, {.ip = address.ip, .port = address.port}, *listener));
  return std::unique_ptr<StreamListener>(std::move(listener));
}

SocketAddress SimStreamListener::address() const {
  const FabricAddress at = listener_->address();
  return {.ip = at.ip, .port = at.port};
}

void SimStreamListener::incoming(std::unique_ptr<Channel> channel, std::span<const std::byte>) {
  if (waiting_.size() >= backlog_) return;  // dropping the channel closes it
  auto stream = std::make_shared<SimStream>(host_);
  stream->accepted(std::move(channel));
  waiting_.push_back(std::move(stream));
  set_ready(host_, *object_->readable, true);
}

Result<std::unique_ptr<StreamSocket>> SimStreamListener::accept() {
  if (host_.dead()) return make_error(Errc::kDead, "accept: the process has been killed");
  if (waiting_.empty()) return make_error(Errc::kWouldBlock, "nobody waits");
  BRAID_CHECK(host_.descriptor("cannot accept a TCP connection"));  // it goes on waiting
  std::shared_ptr<SimStream> stream = std::move(waiting_.front());
  waiting_.pop_front();
  set_ready(host_, *object_->readable, !waiting_.empty());
  return std::unique_ptr<StreamSocket>(std::make_unique<SimStreamSocket>(std::move(stream)));
}

}  // namespace braid::base::sim
