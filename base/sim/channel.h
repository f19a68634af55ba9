// ChannelEnd: one end of a simulated channel: go-back-N retransmission with a retry budget, exactly
// as far as fabric.h promises it.
//
// Requester's part: `pending_` holds requests without an answer, oldest first; one timer for the
// oldest; when it fires, all are sent again. Responder's part: executes `expected_`, ignores what
// comes later, repeats the kept answer for what comes again.
//
// The end is shared by the Channel object of its user and by events under way; what counts is
// whether its user is still there (`open()`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/sim/fabric_impl.h"

namespace braid::base::sim {

class ChannelEnd : public std::enable_shared_from_this<ChannelEnd> {
 public:
  ChannelEnd(FabricImpl& fabric, SimHost& process, FabricPort& port, FabricAddress local,
             FabricAddress peer, RetryBudget budget, ChannelHandler* handler);

  /// Starts a channel: sends the first message to the listener at the peer address.
  void connect(FabricPort* to_port, std::vector<std::byte> first_message);
  std::vector<std::byte> room(size_t bytes) { return fabric_.rooms().take(bytes); }
  void send(std::vector<std::byte> message);
  void set_handler(ChannelHandler* handler);
  void set_retry_budget(RetryBudget budget);
  /// The user let go of it, or died. The peer is told unless `silent`.
  void close(bool silent);

  bool broken() const { return broken_; }
  bool receive_missing() {
    return peer_port_ != nullptr && fabric_.misses_receive(*peer_port_, port_);
  }
  const FabricAddress& local() const { return local_; }
  const FabricAddress& peer() const { return peer_; }
  std::string peer_text() const;
  SimHost& process() const { return process_; }
  uint32_t subject() const { return subject_; }
  uint64_t last_heard_ns() const { return last_heard_ns_; }

 private:
  struct Pending {
    uint64_t sequence;
    SharedBytes message;
    uint64_t sent_ns;
    uint64_t send;  // see SimHost::never_sent
  };
  struct Kept {
    uint64_t sequence;
    SharedBytes answer;
  };
  bool open() const { return !broken_ && !closed_; }
  /// Runs `action` on this end at a time; ordered behind everything sent to it before.
  template <typename Action>
  void deliver(uint64_t at_ns, Action action);

  // requester
  void transmit(Pending& pending);
  /// From the last attempt of the oldest to the next one.
  uint64_t wait_ns() const;
  void arm_timer();
  void timer_due();
  void answer_arrived(uint64_t sequence, const SharedBytes& answer);
  void fail(Errc why);
  // responder
  void first_arrived(uint64_t sequence, const SharedBytes& message);
  void request_arrived(uint64_t sequence, const SharedBytes& message);
  void execute(const SharedBytes& message);
  void drain_held();
  void send_answer(uint64_t sequence, const SharedBytes& answer);
  void forget_answers(uint64_t up_to);

  FabricImpl& fabric_;
  SimHost& process_;
  FabricPort& port_;
  FabricPort* peer_port_ = nullptr;  // null: no such address in this world
  const FabricAddress local_;
  const FabricAddress peer_;
  const uint32_t subject_;
  RetryBudget budget_;
  ChannelHandler* handler_;
  std::shared_ptr<ChannelEnd> other_;  // null until the listener's side exists; reset on close
  bool initiator_ = false;
  bool broken_ = false;
  bool closed_ = false;
  uint64_t last_delivery_ns_ = 0;  // of what was sent to this end: keeps the order

  std::deque<Pending> pending_;
  uint64_t next_sequence_ = 1;
  unsigned timeouts_ = 0;  // in a row, since the last answer
  bool timer_armed_ = false;
  uint64_t timer_armings_ = 0;     // an event of a former one does nothing
  uint64_t stalled_since_ns_ = 0;  // if timeouts_: when the oldest was sent first

  uint64_t expected_ = 1;
  uint64_t last_heard_ns_ = 0;    // when the last request was executed
  std::deque<SharedBytes> held_;  // expected_, expected_ + 1 ...: came while there was no handler
  std::deque<Kept> kept_answers_;
};

class ChannelImpl final : public Channel {
 public:
  explicit ChannelImpl(std::shared_ptr<ChannelEnd> end) : end_(std::move(end)) {}
  ~ChannelImpl() override { end_->close(false); }
  std::vector<std::byte> room(size_t bytes) override { return end_->room(bytes); }
  void send(std::vector<std::byte> message) override { end_->send(std::move(message)); }
  void set_handler(ChannelHandler* handler) override { end_->set_handler(handler); }
  void set_retry_budget(RetryBudget budget) override { end_->set_retry_budget(budget); }
  bool broken() const override { return end_->broken(); }
  bool receive_missing() override { return end_->receive_missing(); }
  FabricAddress local() const override { return end_->local(); }
  FabricAddress peer() const override { return end_->peer(); }
  std::string peer_text() const override { return end_->peer_text(); }

 private:
  const std::shared_ptr<ChannelEnd> end_;
};

}  // namespace braid::base::sim
