// SimEnd: one end of a simulated connection: the channel, the QP's link over it, and the state of
// the connection manager's exchange.
//
//   initiator                                acceptor
//   CONNECT{qpn, data} ------------------->  a ConnectRequest
//   QP to RTS  <------- REPLY{qpn, data} --  accept(): QP to RTR
//              -------- (its answer) ----->  QP to RTS
//   rejected   <-------- REJECT{data} -----  reject()
//   OPERATION  <-------------------------->  OPERATION, each answered
//
// The end acts at delivery, as a NIC and its connection manager do; tasks and callbacks run in
// turns of the reactor that the end belongs to. Threads: the world's only one.
//
// Shared by the QP's link, the Connection and whoever is connecting; what any of them does ends it
// for all (close()).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "base/sim.h"
#include "vhca/soft/sim/messages.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::sim {

class SimEnd final : public base::sim::ChannelHandler, public std::enable_shared_from_this<SimEnd> {
 public:
  enum class Phase : uint8_t { kDeciding, kEstablished, kRejected, kOver };

  explicit SimEnd(base::Reactor& reactor) : reactor_(&reactor), changed_(std::in_place, reactor) {}

  // --- making
  /// Takes the channel (once) and hears of what happens on it.
  void open(std::unique_ptr<base::sim::Channel> channel);
  /// As initiator: the QP that becomes connected when the peer accepts.
  void offer(LinkEnd& qp, const ConnectParameters& parameters);
  /// As acceptor: gives the QP its link and answers; kEstablished follows when the peer knows.
  base::Status accept(base::Reactor& reactor, LinkEnd& qp, uint32_t peer_qp_number,
                      const ConnectParameters& parameters);
  void reject(RejectReason reason, std::span<const std::byte> private_data);
  /// Until the phase is not kDeciding any more.
  base::Task<bool> decided();
  /// No QP and nobody else is told anything any more, the peer learns that we are gone.
  void close();
  /// Takes the channel's end by this side: QP flushed, then as close().
  void disconnect();

  Phase phase() const { return phase_; }
  base::Errc why() const { return why_; }  // once kOver
  std::span<const std::byte> peer_private_data() const { return peer_private_data_; }
  std::string peer_text() const { return peer_text_; }
  base::sim::Channel* channel() { return channel_.get(); }
  /// Runs in a turn of the reactor when the peer ends it; replaces the one before.
  void on_over(std::function<void()> callback) { on_over_ = std::move(callback); }

  // --- for the QP's link
  void send_operation(const Request& request);
  void set_retries(const base::sim::RetryBudget& budget);
  /// The QP, or its link, is no more: its requests get no answer of ours.
  void forget_qp();
  /// The QP went to ERR: the peer's requests are refused from now on.
  void stop_responding() { responding_ = false; }

  // --- ChannelHandler
  void request(std::span<const std::byte> message, std::vector<std::byte>& answer) override;
  void answered(std::span<const std::byte> answer) override;
  void broken(base::Errc why) override;

 private:
  struct Sent {
    bool operation = false;
    uint64_t sequence = 0;
  };

  void respond(std::span<const std::byte> message, std::vector<std::byte>& answer);
  void reply_came(std::span<const std::byte> message);
  void operation_answered(const Sent& sent, std::span<const std::byte> answer);
  void set_phase(Phase phase);
  void over(base::Errc why);

  base::Reactor* reactor_;
  Phase phase_ = Phase::kDeciding;
  base::Errc why_ = base::Errc::kOk;
  bool responding_ = false;
  uint64_t executed_ = 0;  // of the peer's operations: the sequence of the next one
  LinkEnd* qp_ = nullptr;
  ConnectParameters parameters_;  // of offer(); without private data
  std::deque<Sent> sent_;         // requests without an answer, oldest first
  std::vector<std::byte> peer_private_data_;
  std::string peer_text_;
  std::function<void()> on_over_;
  std::optional<base::Signal> changed_;
  // Last: closing it ends all calls into this object.
  std::unique_ptr<base::sim::Channel> channel_;
};

/// The retry budget that connection parameters ask for.
base::sim::RetryBudget retry_budget(const ConnectParameters& parameters);

}  // namespace braid::vhca::soft::sim
