#include "vhca/soft/sim/sim_end.h"

#include <climits>

#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft::sim {
namespace {

using base::Errc;

base::sim::RetryBudget retry_budget(uint8_t ack_timeout, uint8_t retry_count) {
  // Nothing is given up, and what was lost goes on once the way is mended, as on the other wires.
  if (ack_timeout == 0) return {.ack_timeout_ns = 4096ull << 12, .retry_count = UINT_MAX};
  return {.ack_timeout_ns = 4096ull << ack_timeout, .retry_count = retry_count};
}

/// The QP's way to its end.
class SimLink final : public Link {
 public:
  explicit SimLink(std::shared_ptr<SimEnd> end)
      : Link(LinkFamily::kMessage), end_(std::move(end)) {}
  ~SimLink() override { end_->forget_qp(); }

  Execution execute(const Request& request) override {
    end_->send_operation(request);
    return {.outcome = Outcome::kSent};
  }
  Next next_arrival(Arrival&) override { return Next::kNone; }
  void pop_arrival() override {}
  void receive_posted(uint32_t, bool, std::span<const uint32_t>) override {}
  void arm(bool, bool) override {}
  void qp_changed(uint32_t, uint8_t) override {}
  void retries_changed(uint8_t ack_timeout, uint8_t retry_count) override {
    end_->set_retries(retry_budget(ack_timeout, retry_count));
  }
  bool close() override {
    end_->stop_responding();
    return true;
  }

 private:
  const std::shared_ptr<SimEnd> end_;
};

}  // namespace

base::sim::RetryBudget retry_budget(const ConnectParameters& parameters) {
  return retry_budget(parameters.ack_timeout, parameters.retry_count);
}

// --- making

void SimEnd::open(std::unique_ptr<base::sim::Channel> channel) {
  channel_ = std::move(channel);
  peer_text_ = channel_->peer_text();
  channel_->set_handler(this);
}

void SimEnd::offer(LinkEnd& qp, const ConnectParameters& parameters) {
  qp_ = &qp;
  parameters_ = parameters;
  parameters_.private_data = {};
}

base::Status SimEnd::accept(base::Reactor& reactor, LinkEnd& qp, uint32_t peer_qp_number,
                            const ConnectParameters& parameters) {
  if (phase_ != Phase::kDeciding) {
    return base::make_error(Errc::kDisconnected, "{} gave up before it was accepted", peer_text_);
  }
  reactor_ = &reactor;
  changed_.emplace(reactor);
  qp_ = &qp;
  responding_ = true;
  auto link = std::make_unique<SimLink>(shared_from_this());
  if (base::Status status = qp.establish(std::move(link), peer_qp_number, parameters);
      !status.ok()) {
    qp_ = nullptr;
    return status;
  }
  channel_->set_retry_budget(retry_budget(parameters));
  channel_->send(encode_cm(Kind::kReply, qp.info().number, parameters.private_data));
  sent_.push_back({});
  return base::ok_status();
}

void SimEnd::reject(RejectReason reason, std::span<const std::byte> private_data) {
  if (phase_ != Phase::kDeciding) return;
  channel_->send(encode_cm(Kind::kReject, 0, private_data, reason));
  sent_.push_back({});
}

base::Task<bool> SimEnd::decided() {
  const std::shared_ptr<SimEnd> self = shared_from_this();
  while (phase_ == Phase::kDeciding) co_await changed_->wait();
  co_return phase_ == Phase::kEstablished;
}

void SimEnd::close() {
  on_over_ = nullptr;
  qp_ = nullptr;
  responding_ = false;
  if (phase_ != Phase::kOver) set_phase(Phase::kOver);
  channel_.reset();
}

void SimEnd::disconnect() {
  if (LinkEnd* const qp = std::exchange(qp_, nullptr); qp != nullptr) qp->disconnected();
  close();
}

void SimEnd::set_phase(Phase phase) {
  phase_ = phase;
  changed_->notify_all();
  reactor_->wake();
}

// --- for the QP's link

void SimEnd::send_operation(const Request& request) {
  if (channel_ == nullptr) return;
  std::vector<std::byte> message = channel_->room(operation_bytes(request));
  encode_operation(request, message);
  channel_->send(std::move(message));
  sent_.push_back({.operation = true, .sequence = request.sequence});
}

void SimEnd::set_retries(const base::sim::RetryBudget& budget) {
  if (channel_ != nullptr) channel_->set_retry_budget(budget);
}

void SimEnd::forget_qp() {
  qp_ = nullptr;
  responding_ = false;
}

// --- what comes from the peer

void SimEnd::request(std::span<const std::byte> message, std::vector<std::byte>& answer) {
  const std::shared_ptr<SimEnd> self = shared_from_this();
  if (message.empty()) return;
  switch (static_cast<Kind>(message[0])) {
    case Kind::kOperation:
      respond(message, answer);
      return;
    case Kind::kReply:
      reply_came(message);
      return;
    case Kind::kReject: {
      const std::optional<Cm> cm = parse_cm(message);
      if (!cm || phase_ != Phase::kDeciding) return;
      peer_private_data_.assign(cm->private_data.begin(), cm->private_data.end());
      qp_ = nullptr;
      if (cm->reason == RejectReason::kBacklog) {
        over(Errc::kBusy);
      } else {
        set_phase(Phase::kRejected);
      }
      return;
    }
    case Kind::kConnect:
      return;  // only ever the first message of a channel
  }
}

void SimEnd::respond(std::span<const std::byte> message, std::vector<std::byte>& answer) {
  const std::optional<Operation> operation = parse_operation(message);
  if (!operation || qp_ == nullptr || !responding_) {
    encode_answer(Fate::kGone, {}, {}, answer);
    return;
  }
  const Request& request = operation->request;
  const bool next = request.sequence == executed_;
  if (next && needs_receive(request.opcode) && channel_->receive_missing()) {
    encode_answer(Fate::kNoReceive, {.rnr_timer = qp_->info().min_rnr_timer}, {}, answer);
    return;
  }
  std::span<const std::byte> read_result;
  const Answer verdict = qp_->respond(request, operation->payload, &read_result);
  if (next && verdict.kind == Answer::Kind::kAck) ++executed_;
  Fate fate = Fate::kAck;
  switch (verdict.kind) {
    case Answer::Kind::kAck:
      break;
    case Answer::Kind::kNoReceive:
      fate = Fate::kNoReceive;
      break;
    case Answer::Kind::kError:
      fate = Fate::kError;
      break;
    case Answer::Kind::kOutOfSequence:
    case Answer::Kind::kBusy:  // not on this wire
      fate = Fate::kOutOfSequence;
      break;
  }
  if (channel_ != nullptr) answer = channel_->room(sizeof(AnswerHeader) + read_result.size());
  encode_answer(fate, verdict, read_result, answer);
}

void SimEnd::reply_came(std::span<const std::byte> message) {
  const std::optional<Cm> cm = parse_cm(message);
  if (!cm || phase_ != Phase::kDeciding || qp_ == nullptr) return;
  peer_private_data_.assign(cm->private_data.begin(), cm->private_data.end());
  responding_ = true;
  auto link = std::make_unique<SimLink>(shared_from_this());
  LinkEnd& qp = *qp_;
  base::Status status = qp.establish(std::move(link), cm->qp_number, parameters_);
  if (status.ok()) status = qp.start_sending();
  if (!status.ok()) {
    over(Errc::kInvalid);
    return;
  }
  set_phase(Phase::kEstablished);
}

void SimEnd::answered(std::span<const std::byte> answer) {
  const std::shared_ptr<SimEnd> self = shared_from_this();
  if (sent_.empty()) return;
  const Sent sent = sent_.front();
  sent_.pop_front();
  if (sent.operation) {
    operation_answered(sent, answer);
  } else if (qp_ == nullptr) {
    set_phase(Phase::kRejected);  // the peer has our REJECT
  } else if (const base::Status status = qp_->start_sending(); status.ok()) {
    set_phase(Phase::kEstablished);
  } else {
    over(Errc::kInvalid);
  }
}

void SimEnd::operation_answered(const Sent& sent, std::span<const std::byte> answer) {
  if (qp_ == nullptr) return;
  const std::optional<ParsedAnswer> parsed = parse_answer(answer);
  if (!parsed || parsed->fate == Fate::kGone) {
    qp_->broken();
    return;
  }
  // It followed a request that met no receive; the core sends both again.
  if (parsed->fate == Fate::kOutOfSequence) return;
  qp_->answered(sent.sequence, parsed->answer, parsed->read_data);
}

void SimEnd::broken(Errc why) {
  if (phase_ == Phase::kRejected) return;  // whoever waits is to hear that
  const std::shared_ptr<SimEnd> self = shared_from_this();
  over(why);
}

void SimEnd::over(Errc why) {
  why_ = why;
  // The peer's farewell flushes, silence is reported by the oldest outstanding request.
  if (qp_ != nullptr && phase_ == Phase::kEstablished) {
    if (why == Errc::kDisconnected) {
      qp_->disconnected();
    } else {
      qp_->broken();
    }
  }
  set_phase(Phase::kOver);
  if (on_over_ == nullptr) return;
  reactor_->post([weak = weak_from_this()] {
    const std::shared_ptr<SimEnd> end = weak.lock();
    if (end == nullptr || end->on_over_ == nullptr) return;
    const std::function<void()> callback = std::exchange(end->on_over_, nullptr);
    callback();
  });
}

}  // namespace braid::vhca::soft::sim
