// Connection: one RC QP with its CQ, as both roles of TRS use it. Counts send credits, keeps a
// header buffer per send slot, reposts receives, and drains after a failure.
//
//   kSetup --attach()--> kOpen --fence()--> kDraining --both flush markers seen--> kDrained
//
// Send slots. A WR occupies a slot of the send queue until a signalled completion at or behind it
// has been polled; `signal_every` of them share one. Slot s owns header(s), so header memory is
// never rewritten while the device may still read it: posted - completed <= send_depth.
//
// Receives are empty (what arrives are RDMA writes with immediate), except those of connection 0:
// the first take the messages of the set-up, the others a control message each. Those of a
// client whose server gives its chunks new keys have room for the message that tells one.
//
// A connection that is silent sleeps: it is armed once, and not polled before its CQ has an event,
// or it posts something itself (docs/sleeping-connections.md).
//
// Thread: the reactor given; the creation too.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/reactor.h"
#include "vhca/device.h"

namespace braid::trs {

class Connection;

/// Who owns a connection. Calls come from poll(); none destroys the connection.
class ConnectionUser {
 public:
  virtual ~ConnectionUser() = default;
  /// An RDMA write with immediate of the peer (host order), whose data has `bytes`. While draining,
  /// what the device had completed before the fence still comes.
  virtual void received_imm(Connection& connection, uint32_t imm, uint32_t bytes) = 0;
  /// A SEND: of the set-up, or a control message after it. Valid during the call.
  virtual void received_message(Connection& connection, std::span<const std::byte> message) = 0;
  /// A SEND with immediate, of at most kAnswerBytes, to who asked for those. Valid during the call.
  virtual void received_answer(Connection& connection, uint32_t imm,
                               std::span<const std::byte> message) {
    (void)connection, (void)imm, (void)message;
  }
  /// The oldest WR of post_local() has been done. While draining too, as above.
  virtual void local_done(Connection& connection) { (void)connection; }
  /// It sleeps or dozes no more: poll it in each turn again.
  virtual void woken(Connection& connection) { (void)connection; }
  /// A completion failed, or the CQ was overrun. At most once; not after fence().
  virtual void failed(Connection& connection, base::Error why) = 0;
};

struct ConnectionOptions {
  uint32_t send_depth = 64;     // WRs under way, the flush marker apart
  uint32_t receive_depth = 64;  // empty receives
  uint32_t header_bytes = 0;    // per send slot
  uint32_t control_bytes = 0;   // buffer of each receive, for SENDs; 0: they are empty
  bool touch_buffers = true;    // headers have all their memory from the start
  vhca::CompChannel* channel = nullptr;
  vhca::Td* td = nullptr;
};

/// Beside the sends of requests: heartbeats and control messages. Where a long message of the peer
/// is under way, its acknowledgements wait behind that, while we say every other check that we
/// live.
inline constexpr uint32_t kSendsBesideRequests = 32;

class Connection : private base::TurnEnd {
 public:
  /// Makes QP (in INIT) and CQ. Receives are not posted yet.
  static base::Result<std::unique_ptr<Connection>> create(vhca::Device& device, vhca::Pd& pd,
                                                          base::Reactor& reactor,
                                                          const ConnectionOptions& options,
                                                          ConnectionUser& user);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  vhca::Qp& qp() { return *qp_; }
  static constexpr uint32_t kAnswerBytes = 8;
  static constexpr size_t kMessagesMax = 3;
  /// Posts all receives, before them one for each message of the set-up, of these lengths, at most
  /// kMessagesMax. `take_answers`: SENDs with immediate may come too.
  base::Status post_receives(std::span<const uint32_t> message_bytes, bool take_answers = false);
  /// Takes the established connection. `lost` runs when the peer ends it.
  void attach(std::unique_ptr<vhca::Connection> established, std::function<void()> lost);
  std::string peer_text() const;

  // --- data path
  bool can_send(uint32_t count = 1) const {
    return posted_ - completed_ + count <= options_.send_depth;
  }
  /// The header buffer of the next WR; its lkey.
  std::byte* next_header() {
    return headers_->data() + posted_ % options_.send_depth * options_.header_bytes;
  }
  uint32_t header_lkey() const { return header_mr_->lkey; }
  static constexpr uint32_t kInlineBytes = 64;  // the most that a WR with IBV_SEND_INLINE carries
  /// Posts one WR (its wr_id is set here, its signalled flag as needed). Only if can_send(). False:
  /// the connection failed, which its user has been told.
  bool post(vhca::SendWr& wr) { return post(std::span(&wr, 1)); }
  /// The same for several, as one chain. Only if can_send(their number).
  bool post(std::span<vhca::SendWr> chain);
  /// A BIND_MW or LOCAL_INV, signalled: ConnectionUser::local_done tells, in their order.
  bool post_local(vhca::SendWr& wr);
  /// An RDMA WRITE_WITH_IMM without data.
  bool post_imm(uint32_t imm);
  /// The same for what only shows that we live. A connection that was silent is so still: it sleeps
  /// again soon, if an answer is asked for when that may have come.
  bool ask_heartbeat(uint32_t imm) { return post_heartbeat(imm, kHeartbeatAnswerNs); }
  bool answer_heartbeat(uint32_t imm) { return post_heartbeat(imm, 0); }
  /// What is being taken is a heartbeat, or an answer to one: likewise. Once, from the user's
  /// received_imm().
  void heard_heartbeat() {
    --received_now_;
    heartbeat_ns_ = reactor_.now_ns();
  }
  /// An RDMA WRITE without data, which the peer's program never sees: if nobody is there to
  /// acknowledge it, the connection fails.
  bool post_probe();
  /// Polls once, for at most 32 completions, or as many as are given. How many there were.
  size_t poll(size_t most = SIZE_MAX);

  // --- sleep
  /// How long a connection may be silent and is polled all the same: arming it costs as much as
  /// many polls.
  static constexpr uint64_t kSilentNs = base::kMillisecond;
  /// How long the answer to a heartbeat is polled for. One that comes later wakes it.
  static constexpr uint64_t kHeartbeatAnswerNs = 100 * base::kMicrosecond;
  /// Before its reactor sleeps, or it does: Reactor::fence(), and a poll, have to follow.
  void arm();
  /// After a poll() that found nothing: arms it if it was silent for long. True: it was armed, and
  /// the reactor's fence came, before that poll; it sleeps from now on.
  bool falls_asleep();
  bool asleep() const { return asleep_; }
  /// It is silent and falls asleep behind the reactor's next fence, unless something comes: until
  /// then it may be polled seldom.
  bool dozes() const { return armed_ && !asleep_ && reactor_.fences() < armed_from_; }
  /// Wakes those of a channel's connections that have an event: whoever watches the channel calls
  /// it, and again while CompChannel::more().
  static void take_events(vhca::CompChannel& channel);

  /// How long nothing but heartbeats has been received or posted.
  uint64_t silent_ns() const { return reactor_.now_ns() - active_ns_; }
  /// When the peer was heard last, where all that was posted is answered.
  uint64_t heard_ns() const { return std::max(active_ns_, heartbeat_ns_); }
  uint64_t arrived_bytes() const { return qp_->arrived_bytes(); }
  bool shares_fate() const { return shares_fate_; }  // Qp::shares_fate()
  /// Once it is attached.
  void share_wire_budget(std::shared_ptr<vhca::WireBudget> budget) {
    qp_->share_wire_budget(std::move(budget));
  }
  bool open() const { return state_ == State::kOpen; }
  uint64_t posted() const { return posted_; }

  // --- the end
  /// QP to ERR; nothing of the peer lands here any more. Poll until drained(). Idempotent.
  void fence();
  /// Every completion that could come has come: no buffer is in use by the device any more.
  bool drained() const { return state_ == State::kDrained; }

 private:
  enum class State : uint8_t { kSetup, kOpen, kDraining, kDrained };
  Connection(base::Reactor& reactor, const ConnectionOptions& options, ConnectionUser& user);
  base::Status build(vhca::Device& device, vhca::Pd& pd);
  bool repost_receives();
  base::Status post_message_receives(std::span<const uint32_t> message_bytes);
  base::Status prepare_buffers();
  void give_buffers(uint32_t count);
  bool send(std::span<vhca::SendWr> chain);
  bool give(vhca::SendWr& first);
  static vhca::SendWr imm_alone(uint32_t imm);
  bool post_heartbeat(uint32_t imm, uint64_t polled_ns);
  void completed_send(const vhca::Wc& wc);
  void complete(const vhca::Wc& wc);
  void completed_receive(const vhca::Wc& wc);
  void fail(base::Error why);
  void wake();
  void turn_ends() override { qp_->send_posted(); }

  base::Reactor& reactor_;
  const ConnectionOptions options_;
  ConnectionUser& user_;
  State state_ = State::kSetup;
  bool failed_ = false;
  bool holds_posts_ = false;  // they go at the end of the turn
  bool shares_fate_ = false;
  unsigned markers_due_ = 0;
  // Nothing was polled or posted since arm(). Where a CQ cannot be disarmed, what comes first after
  // a post gives an event, which is one too many.
  bool armed_ = false;
  uint64_t armed_from_ = 0;  // Reactor::fences()
  bool asleep_ = false;
  uint64_t active_ns_ = 0;     // when something but a heartbeat was received or posted last
  uint64_t heartbeat_ns_ = 0;  // when the last one was received
  uint64_t awaiting_ns_ = 0;   // as active_ns_, for the answer to a heartbeat of ours
  unsigned received_now_ = 0;  // of those, in the present poll

  // Counts of WRs: 0 <= posted_ - completed_ <= send_depth.
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t last_signaled_ = 0;
  uint32_t signal_every_ = 1;
  uint32_t receives_used_ = 0;  // and not yet posted again

  vhca::Pd* pd_ = nullptr;
  std::unique_ptr<base::Segment> headers_;
  std::vector<std::byte> messages_;  // those of the set-up, one behind the other
  std::array<std::span<std::byte>, kMessagesMax> message_of_;
  std::unique_ptr<std::byte[]> control_;  // receive_depth buffers, used in turn
  uint32_t control_bytes_ = 0;            // of each
  bool take_answers_ = false;
  uint32_t control_next_ = 0;  // the buffer that is posted next
  std::unique_ptr<vhca::Mr> header_mr_;
  std::unique_ptr<vhca::Mr> message_mr_;
  std::unique_ptr<vhca::Mr> control_mr_;
  std::unique_ptr<vhca::Cq> cq_;
  std::unique_ptr<vhca::Qp> qp_;
  std::unique_ptr<vhca::Connection> established_;
  static constexpr uint32_t kRepostBatch = 32;
  std::array<vhca::RecvWr, kRepostBatch> receive_chain_{};
  std::array<vhca::Sge, kRepostBatch> receive_pieces_{};
};

/// "work request flushed", "retry count exceeded": for logs and errors.
const char* to_string(ibv_wc_status status);

}  // namespace braid::trs
