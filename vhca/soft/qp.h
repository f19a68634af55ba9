// SoftQp: a reliable-connected queue pair of the software HCA.
//
// Send queue: four counters over a ring of entries, all counting work requests since RESET.
//
//      tail_ <= done_ <= sent_ <= head_           slots in use: head_ - tail_
//        |        |        |        '- posted
//        |        |        '- handed to the link
//        |        '- completed, in order
//        '- given back: up to the last completion that made a CQE (unsignalled work requests give
//           their slots back with the next signalled one, as on hardware)
//
// A post on an idle queue runs inline and stores no entry if the link says kDone.
// Receive queue: a ring of entries with their SGEs; keys are resolved when data lands. With an SRQ
// it holds only what was taken from there for a message that is about to arrive.
// In ERR both queues are flushed once the link is closed; until then they take what is posted.
//
// Threads: any (lock()); with a Td that thread, without a lock. Wires: see soft/wire.h.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "vhca/device.h"
#include "vhca/soft/cq.h"
#include "vhca/soft/device.h"
#include "vhca/soft/recv_ring.h"
#include "vhca/soft/spin_lock.h"
#include "vhca/soft/stall_clock.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft {

class SoftSrq;

class SoftQp final : public Qp, public LinkEnd, private LockedEnd, public Stalled {
 public:
  static base::Result<std::unique_ptr<Qp>> create(SoftPd& pd, const QpOptions& options);
  ~SoftQp() override;
  SoftQp(const SoftQp&) = delete;
  SoftQp& operator=(const SoftQp&) = delete;

  int post_send(const SendWr* wr, const SendWr** bad) override;
  int post_recv(const RecvWr* wr, const RecvWr** bad) override;
  base::Status modify(const QpAttr& attr, int mask) override;
  QpAttr query() const override;
  QpOptions options() const override;
  uint32_t number() const override { return number_; }
  bool holds_posts() const override;
  bool shares_fate() const override;
  void send_posted() override;
  uint64_t arrived_bytes() const override;
  void share_wire_budget(std::shared_ptr<WireBudget> budget) override;

  // --- LinkEnd: see soft/wire.h
  EndInfo info() const override;
  base::Status establish(std::unique_ptr<Link> link, uint32_t peer_qp_number,
                         const ConnectParameters& parameters) override;
  base::Status start_sending() override;
  Answer respond(const Request& request, std::span<const std::byte> payload,
                 std::span<const std::byte>* read_result) override;
  void answered(uint64_t sequence, const Answer& answer,
                std::span<const std::byte> read_data) override;
  void broken() override;
  void disconnected() override;
  void wake() override;
  void move() override;

  SoftDevice& device() { return device_; }
  /// For modify() from INIT to RTR, which needs one: the conformance suite tries all states so.
  void give_link(std::unique_ptr<Link> link);

  // --- for SoftCq (not under the lock); `cq` is the one that asks
  /// Arrivals to completions, at most `budget`, and stalled sends again. The number of arrivals.
  uint32_t progress(uint32_t budget, const SoftCq& cq);
  /// Cheap: whether progress() and arm_link() have anything to do.
  bool needs_progress(std::memory_order order = std::memory_order_relaxed) const {
    return needs_progress_.load(order);
  }
  /// Whether the bare event of a channel may be of this QP: while its CQ sleeps, what comes by a
  /// stream is moved by whoever watches the stream.
  bool signals_unnamed() const { return signals_unnamed_.load(std::memory_order_relaxed); }
  /// Before and after the CQ sleeps. True if a direct link was told.
  bool arm_link(bool armed, bool solicited_only, const SoftCq& cq);
  void stall_over() override;

  // --- faults made on purpose (vhca/device_faults.h)
  /// In RTR, RTS or SQD.
  bool connected() const;
  /// To ERR with QP_FATAL, if connected().
  void fail_by_itself(std::string_view cause);

 private:
  bool connected_locked() const {
    return state_ == IBV_QPS_RTR || state_ == IBV_QPS_RTS || state_ == IBV_QPS_SQD;
  }
  struct SqEntry;
  static size_t sq_stride_bytes(const QpCap& cap);
  /// What keeps the send queue, or in ERR the flush of both queues, waiting.
  enum class Stall : uint8_t { kNone, kNoReceive, kNoRoom, kPeerCopies };

  SoftQp(SoftPd& pd, const QpOptions& options, uint32_t number);

  // --- LockedEnd: see soft/wire.h
  base::Status start_sending_locked() override;
  Answer respond_locked(const Request& request, std::span<const std::byte> payload,
                        std::span<const std::byte>* read_result) override;
  Answer land(const Request& request, bool begun, Landing& landing) override;
  Answer respond_landed(const Request& request) override;
  std::span<const std::byte> readable(const Request& request) override;
  bool stand(std::span<const Piece> pieces, bool lands) const override;
  bool sleeps() const override { return recv_cq_->armed(); }
  void memory_gone_locked(uint64_t wire_sequence) override;
  void answered_locked(uint64_t sequence, const Answer& answer,
                       std::span<const std::byte> read_data) override;
  void broken_locked() override;
  void disconnected_locked() override;
  void refused_locked(ibv_wc_status status, std::string_view cause) override {
    (void)refuse(status, cause);
  }

  // --- requester.cc: all under the lock
  int post_one(const SendWr& wr);
  int check_post(const SendWr& wr) const;
  int post_in_error(const SendWr& wr);
  ibv_wc_status gather(const SendWr& wr, Piece* pieces, uint32_t& length) const;
  bool holds(const Sge& sge, bool lands) const;
  bool must_wait(ibv_wr_opcode opcode, bool fence) const;
  SqEntry& store(const SendWr& wr, std::span<const Piece> pieces, uint32_t length,
                 ibv_wc_status status);
  void progress_sends();
  bool may_send() const;
  void check_drained();
  void hand_over_sends();
  bool settle(uint64_t sequence, const Execution& execution);
  void no_receive(uint64_t sequence, uint8_t rnr_timer);
  void go_back(uint64_t sequence);
  void stall(Stall why, uint64_t delay_ns);
  void end_stall();
  void fail_at(uint64_t sequence, ibv_wc_status status);
  void complete_in_order();
  void complete_send(uint64_t wr_id, ibv_wr_opcode opcode, uint32_t length, ibv_wc_status status);
  bool find_sent(uint64_t wire_sequence, uint64_t& sequence) const;
  ibv_wc_status land_data(const SqEntry& entry, uint64_t sequence,
                          std::span<const std::byte> data) const;
  void flush_sends();
  SqEntry& sq_entry(uint64_t sequence) const;
  Piece* sq_pieces(uint64_t sequence) const;           // max_send_sge
  std::byte* sq_inline_data(uint64_t sequence) const;  // max_inline_data

  // --- windows.cc: all under the lock
  int post_local(const SendWr& wr);
  Execution run_local(const SqEntry& entry);
  Execution invalidate_local(uint32_t key);

  // --- responder.cc: all under the lock
  void heard_of_peer();
  Answer refuse(ibv_wc_status requester_status, std::string_view cause);
  Answer respond_checked(const Request& request, std::span<const std::byte> payload,
                         std::span<const std::byte>* read_result);
  ibv_wc_status check_memory(const Request& request, MrView& mr) const;
  ibv_wc_status access_memory(const Request& request, std::span<const std::byte> payload,
                              std::span<const std::byte>* read_result);
  Answer change_word(const Request& request, std::span<const std::byte>* result);
  uint32_t drain_arrivals(uint32_t budget);
  void repeat_atomic(uint64_t sequence, Answer& answer, std::span<const std::byte>* result) const;
  bool invalidate_for_peer(uint32_t key);
  /// Lands a message in the next receive and completes it. Not SUCCESS: what the requester reports;
  /// the receive fails with the error that fits when the QP goes to ERR, which must follow.
  ibv_wc_status receive(const Arrival& arrival);
  ibv_wc_status scatter(const RecvEntry& entry, std::span<const std::byte> payload) const;
  ibv_wc_status check_receive(uint64_t length) const;
  Answer checked_before_data(const Request& request);
  void complete_receive(const Arrival& arrival, ibv_wc_status status);
  int post_one(const RecvWr& wr);
  bool receive_usable(const RecvEntry& entry) const;
  bool have_receive();
  void tell_of_receive(const RecvEntry& entry);
  void answer_wish();
  void flush_receives();
  void return_receives();

  // --- qp.cc: all under the lock
  base::Status modify_locked(const QpAttr& attr, int mask);
  base::Status check_way(const QpAttr& attr, int mask) const;
  base::Status check_values(const QpAttr& attr, int mask) const;
  void apply(const QpAttr& attr, int mask);
  void set_state(ibv_qp_state next, std::string_view cause);
  void enter_error(std::string_view cause);
  void fail(ibv_event_type event, std::string_view cause);
  void close_link();
  void try_again();
  void enter_reset(std::string_view cause);
  std::unique_ptr<Link> take_link();
  void attach_link(std::unique_ptr<Link> link);
  uint32_t remote_access() const;
  void update_needs_progress();

  // What a post and a poll touch stands first.
  mutable SpinLock lock_;
  ibv_qp_state state_ = IBV_QPS_RESET;
  Stall stall_ = Stall::kNone;
  const bool signal_all_;
  std::atomic<bool> needs_progress_{false};
  std::atomic<bool> signals_unnamed_{false};
  uint32_t reads_outstanding_ = 0;  // READs and atomics
  Link* direct_link_ = nullptr;     // link_ if it is a direct one
  Link* stream_link_ = nullptr;     // link_ if it is a stream
  std::unique_ptr<Link> link_;
  uint64_t head_ = 0;
  uint64_t sent_ = 0;
  uint64_t done_ = 0;
  uint64_t tail_ = 0;
  uint64_t locals_sent_ = 0;  // of those before sent_: BIND_MW and LOCAL_INV, no matter of the wire
  uint64_t rq_head_ = 0;      // posted
  uint64_t rq_tail_ = 0;      // used up
  SoftCq* const send_cq_;
  SoftCq* const recv_cq_;
  SoftSrq* const srq_;
  MrTable& mr_table_;
  const uint32_t number_;
  const uint32_t pd_id_;
  const uint32_t receive_pd_id_;  // of the SRQ, or pd_id_
  const QpCap cap_;
  const uint32_t sq_mask_;
  Td* const td_;
  const bool posts_with_poll_;
  const uint32_t longest_receive_bytes_;
  const size_t sq_stride_bytes_;
  const std::unique_ptr<std::byte[]> sq_;  // entries, each with its pieces and its inline data
  const RecvRing rq_;

  SoftDevice& device_;
  uint64_t shared_id_ = 0;  // OwnThreads; without a thread domain
  uint64_t expected_ = 0;   // message links: the peer's next sequence
  // Message links: what the peer's last atomics found, for requests that come again.
  struct AtomicResult {
    uint64_t sequence = 0;
    uint64_t before = 0;
  };
  std::array<AtomicResult, kMaxReadsOutstanding> atomic_results_;
  uint64_t atomics_executed_ = 0;
  uint64_t retry_at_ns_ = 0;    // while stalled
  uint64_t close_wait_ns_ = 0;  // kPeerCopies: until the next look
  uint8_t rnr_left_ = 0;        // tries of the oldest request before RNR_RETRY_EXC
  // What the oldest of each queue fails with in ERR; those behind it are flushed.
  ibv_wc_status send_failure_ = IBV_WC_WR_FLUSH_ERR;
  ibv_wc_status receive_failure_ = IBV_WC_WR_FLUSH_ERR;
  AsyncNode failure_event_;
  AsyncNode last_receive_event_;
  AsyncNode drained_event_;
  AsyncNode established_event_;
  uint64_t drain_end_ = 0;     // SQD: requests before it had begun, and are finished
  bool tell_drained_ = false;  // when they are
  bool heard_of_peer_ = false;
  bool binds_ = false;                       // windows were bound through this QP
  std::unique_ptr<PeerFence> invalidation_;  // of the oldest unsent request, a LOCAL_INV
  QpAttr attr_{};
  ConnectParameters parameters_;  // between establish() and start_sending(); without private data
};

}  // namespace braid::vhca::soft
