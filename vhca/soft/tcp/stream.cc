#include "vhca/soft/tcp/stream.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft::tcp {

using base::Errc;

namespace {

/// A poll, or a turn, moves no more than this in from one connection: others want their turn. Twice
/// that once, in the run in which a send fails.
constexpr size_t kReceiveBytesPerRun = 256 * 1024;
/// Who calls holds a lock that its owner spins for.
constexpr uint64_t kSendBytesPerRun = 1 << 20;
constexpr uint64_t kSharedSendBytesPerRun = 64 << 10;  // while others wait for their turn, too
/// How long polls look at a silent socket each time; after that the reactor watches it, and polls
/// look now and then, for owners whose reactor does not turn.
constexpr uint64_t kHotNs = 50 * base::kMicrosecond;
constexpr uint32_t kColdPolls = 64;
/// How long an acknowledgement that nobody waits for may wait for a frame that carries it.
constexpr uint64_t kLazyNs = 100 * base::kMicrosecond;

struct Pieces {
  std::span<const iovec> pieces;
  uint64_t bytes = 0;
};

/// The first `most` bytes of them.
Pieces at_most(iovec* pieces, uint32_t count, uint64_t most) {
  uint64_t bytes = 0;
  uint32_t used = 0;
  while (used < count && bytes < most) {
    iovec& piece = pieces[used++];
    piece.iov_len = std::min<uint64_t>(piece.iov_len, most - bytes);
    bytes += piece.iov_len;
  }
  return {{pieces, used}, bytes};
}

}  // namespace

/// Registered memory may be touched.
class TcpStream::Busy {
 public:
  explicit Busy(Activity& activity) : activity_(activity) {
    activity_.count.fetch_add(1, std::memory_order_seq_cst);
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() { activity_.count.fetch_add(1, std::memory_order_seq_cst); }

 private:
  Activity& activity_;
};

TcpStream::TcpStream(base::Host& host, base::StreamSocket& socket, StreamEvents& events,
                     std::shared_ptr<Activity> activity, const Options& options)
    : host_(host),
      socket_(socket),
      events_(events),
      activity_(std::move(activity)),
      options_(options),
      out_(socket, options.sends_max),
      awaits_ready_(options.awaits_ready),
      buffer_(std::make_unique<std::byte[]>(kBufferBytes)) {
  out_.set_epoch(options.epoch);
  if (!awaits_ready_) out_.push(FrameKind::kReady);
}

// --- the requester's way in

Execution TcpStream::execute(const Request& request) {
  if (ended() || closed_) return {.outcome = Outcome::kSent};  // broken() follows
  if (peer_gone_) return {.outcome = Outcome::kFailed, .status = IBV_WC_RETRY_EXC_ERR};
  if (!out_.room_for_request()) return {.outcome = Outcome::kFull};
  // After RNR the core goes back: READs behind were dropped by the peer.
  while (reads_head_ != reads_tail_ &&
         reads_[(reads_head_ - 1) % reads_.size()].sequence >= request.sequence) {
    --reads_head_;
  }
  if (returns_data(request.opcode)) {
    BRAID_ASSERT(reads_head_ - reads_tail_ < reads_.size());  // the initiator depth is at most that
    reads_[reads_head_++ % reads_.size()] = {
        .sequence = request.sequence, .pieces = request.pieces, .length = request.length};
  }
  next_ = request.sequence + 1;
  if (hindered()) [[unlikely]]
    note_request();
  out_.push_request(request);
  return {.outcome = Outcome::kSent};
}

void TcpStream::flush() {
  if (running_ || out_.empty()) return;
  if (hindered()) [[unlikely]]
    look_at_ports();
  const Busy busy(*activity_);
  running_ = true;
  send();
  running_ = false;
  // Told by the next run(): the socket, shut down, is readable.
  if (ended()) events_.want_read();
}

/// False: the socket takes no more, or this was enough for one turn.
bool TcpStream::send() {
  send_last_words();
  while (!ended() && out_.sendable()) {
    const bool shares = budget_ && budget_->bounded();
    const uint64_t most = shares ? kSharedSendBytesPerRun : kSendBytesPerRun;
    uint64_t sent = 0;
    const Errc failed = out_.flush(end_, withholds() ? out_.told() : executed_, most, sent);
    if (budget_ && sent > 0) budget_->moved_by_call(sent);
    if (sent > 0) stuck_ = false;
    if (failed == Errc::kStale) {
      oldest_is_stale();
      send_last_words();
      continue;
    }
    if (failed == Errc::kOk && !out_.sendable()) break;
    if (failed == Errc::kOk || failed == Errc::kWouldBlock) {
      events_.want_write();
      return false;
    }
    // Why it ended may still be there to be read: run() fails.
    send_failed_ = failed;
    unsent_ = false;
    socket_.shut_down();
  }
  if (!unsent() || ended() || !out_.empty()) return true;
  unsent_ = false;
  socket_.shut_down_send();
  return true;
}

/// The memory of the oldest frame is gone: the peer's READ is refused, our own request fails.
void TcpStream::oldest_is_stale() {
  const bool begun = out_.oldest_begun();
  if (const auto sequence = out_.oldest_request(); sequence.has_value()) {
    const bool goes_again = !begun && !out_.drop_requests();
    acknowledge();  // what carried it may be gone
    if (goes_again) return;
    end_->memory_gone_locked(*sequence);
    // Nothing can follow a request that is half sent.
    if (begun) fail(Errc::kDisconnected);
    return;
  }
  if (begun) return violate("a READ of memory that was deregistered while its data was sent");
  out_.refuse_oldest(IBV_WC_REM_ACCESS_ERR);
  end_->refused_locked(IBV_WC_REM_ACCESS_ERR,
                       "memory that the peer reads was deregistered before its data was sent");
}

// --- running

void TcpStream::run(LockedEnd* end, bool woken) {
  end_ = end;
  const bool poll = !woken;
  if (poll) polls_.store(polls() + 1, std::memory_order_relaxed);
  if (hindered()) [[unlikely]]
    look_at_ports();
  const bool receives = should_receive(woken);
  if (!receives && !out_.sendable() && executed_ == out_.told() && !ended()) return;
  const Busy busy(*activity_);
  running_ = true;
  // The owner has had a poll's time to send what carries it.
  const bool due = acknowledgement_due_.exchange(false, std::memory_order_relaxed);
  if (executed_ != out_.told() &&
      (due || (poll && (urgent_ || host_.now_ns() - unacknowledged_since_ns_ >= kLazyNs)))) {
    acknowledge();
  }
  // What was posted since the last poll goes before what has come takes its time.
  const bool left = poll && !send();
  if (receives && !ended()) receive(kReceiveBytesPerRun);
  if (executed_ != out_.told() && !withholds() && !ended()) {
    // While the socket is not polled nobody promises to come back for it.
    if ((urgent_ && !told_owner_) || (poll && !hot())) {
      acknowledge();
    } else if (woken && !out_.carries_acknowledgement()) {
      events_.acknowledge_later();
    }
  }
  if (left) {
    send_last_words();  // it was closed meanwhile
  } else {
    send();
  }
  if (send_failed_ != Errc::kOk) hear_last_words();
  running_ = false;
  report();
}

bool TcpStream::should_receive(bool woken) {
  if (dead_ != Errc::kOk || deaf() || waits_for_turn()) return false;
  if (woken) {
    // Somebody polls beside us: he shall look at the socket himself.
    const bool polled = polls() != polls_at_wake_ && (end_ == nullptr || !end_->sleeps());
    if (polled) hot_.store(true, std::memory_order_relaxed);
    polls_at_wake_ = polls();
    silent_since_ns_ = 0;
    return true;
  }
  if (waits_for_word()) [[unlikely]]
    return host_.now_ns() >= word_again_ns_;
  return hot() || polls() % kColdPolls == 0;
}

void TcpStream::sleep() {
  cool();
  if (!waits_for_turn()) events_.want_read();
  if (executed_ == out_.told()) return;
  acknowledge();
  flush();
}

void TcpStream::acknowledge() {
  if (dead_ != Errc::kOk || hung_up_ || executed_ == out_.told() || withholds()) return;
  if (!out_.carries_acknowledgement() && out_.room_for_answer()) out_.push(FrameKind::kAnswer);
}

/// A send has failed. Why the peer closed may stand behind what it sent before, of which each run()
/// takes a part, as ever.
void TcpStream::hear_last_words() {
  const bool hears = dead_ == Errc::kOk && !closed_ && !deaf();
  if (hears && waits_for_turn()) return;
  if (hears && !receive(kReceiveBytesPerRun) && !stuck()) {
    if (!waits_for_turn()) events_.want_read();
    return;
  }
  fail(send_failed_);
}

/// False: there may be more.
bool TcpStream::receive(uint64_t left) {
  bool any = false;
  bool all = false;
  parse();
  if (budget_ && dead_ == Errc::kOk && !stuck() && !has_turn()) return false;
  while (dead_ == Errc::kOk && !stuck() && !all && left > 0) {
    const uint64_t most = budget_ ? budget_->most(left) : left;
    if (most == 0) {  // it goes on with its next turn
      (void)has_turn();
      any = true;
      break;
    }
    iovec pieces[kPieces];
    const uint32_t count = receive_pieces(pieces);
    if (dead_ != Errc::kOk) break;
    const Pieces asked = at_most(pieces, count, most);
    size_t received = 0;
    const Errc failed = socket_.receive(asked.pieces, received);
    all = failed != Errc::kOk || received < asked.bytes;  // less than there was room for
    if (failed == Errc::kWouldBlock) {
      if (budget_) budget_->called_in_vain();
      break;
    }
    if (failed != Errc::kOk) {
      fail(failed);
      break;
    }
    any = true;
    if (budget_) budget_->moved_by_call(received);
    landed_bytes(received);
    parse();
    left -= received;
  }
  if (dead_ == Errc::kOk && !stuck()) note_silence(any);
  return all || dead_ != Errc::kOk;
}

void TcpStream::note_silence(bool received) {
  if (received) {
    silent_since_ns_ = 0;
    return;
  }
  if (!hot()) return;
  const uint64_t now_ns = host_.now_ns();
  if (silent_since_ns_ == 0) silent_since_ns_ = now_ns;
  if (now_ns - silent_since_ns_ < kHotNs) return;
  cool();
  events_.want_read();
}

/// Among those that share the budget. If not, it is told when it has one.
bool TcpStream::has_turn() {
  if (budget_->begin(*this)) return true;
  waits_for_turn_ = true;
  return false;
}

void TcpStream::resume_receiving() {
  waits_for_turn_ = false;
  events_.may_receive();
}

void TcpStream::share_budget(std::shared_ptr<WireBudget> budget) {
  leave_budget();
  budget_ = std::move(budget);
}

/// What waits in the socket is seen to again.
void TcpStream::leave_budget() {
  base::ListNode::unlink();
  if (waits_for_turn_.exchange(false)) events_.want_read();
  budget_.reset();
}

/// Where the next bytes go: what is left of the frame under way, then the buffer.
uint32_t TcpStream::receive_pieces(iovec* pieces) {
  uint32_t count = landing_room(pieces);
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, filled_ - begin_);
    filled_ -= begin_;
    begin_ = 0;
  }
  pieces[count++] = {buffer_.get() + filled_, kBufferBytes - filled_};
  return count;
}

// --- the end

void TcpStream::fail(Errc why) {
  if (dead_ != Errc::kOk) return;
  dead_ = why;
  unsent_ = false;
  // The peer reads the end, and whoever watches the socket wakes up and reports it here.
  socket_.shut_down();
}

void TcpStream::violate(const std::string& what) {
  if (dead_ != Errc::kOk) return;
  complain(fmt::format("the connection to {} ends: {}", options_.peer_text, what));
  fail(Errc::kProtocol);
}

void TcpStream::complain(std::string line) {
  const std::string ip = options_.peer_text.substr(0, options_.peer_text.rfind(':'));
  if (options_.complaints && options_.complaints->put(ip, line)) return;
  host_.log().warning("{}", line);
}

/// Tells the QP and the connection, once.
void TcpStream::report() {
  if (dead_ == Errc::kOk || reported_) return;
  reported_ = true;
  if (end_ != nullptr && !closed_) {
    if (in_order_) {
      end_->disconnected_locked();
    } else {
      end_->broken_locked();
    }
  }
  events_.over(dead_ == Errc::kProtocol ? Errc::kProtocol : Errc::kDisconnected);
}

void TcpStream::close() {
  if (std::exchange(closed_, true)) return;
  reads_tail_ = reads_head_;
  if (into_ != Into::kBuffer) into_ = Into::kNowhere;
  if (dead_ != Errc::kOk) return;
  if (!out_.drop_data()) {
    // The peer cannot tell what would follow from the rest of the data.
    fail(Errc::kDisconnected);
    return events_.want_read();
  }
  gone_due_ = true;
  if (running_) return;  // send() follows
  send_last_words();
  flush();
}

void TcpStream::leave() {
  leave_budget();
  close();
  end_ = nullptr;
}

/// The QP is in ERR: behind what was answered, requests are not.
void TcpStream::send_last_words() {
  if (!gone_due_ || dead_ != Errc::kOk) return;
  gone_due_ = false;
  out_.push(FrameKind::kGone);
}

void TcpStream::hang_up() {
  leave_budget();  // who gives to it may be gone before the farewell
  if (std::exchange(hung_up_, true) || dead_ != Errc::kOk) return;
  close();
  if (dead_ != Errc::kOk) return;
  out_.push(FrameKind::kDisconnect);
  unsent_ = true;  // until the socket has taken all
  flush();
}

}  // namespace braid::vhca::soft::tcp
