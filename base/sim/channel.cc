#include "base/sim/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/sim/host.h"
#include "base/sim/world.h"

namespace braid::base::sim {
namespace {

constexpr uint64_t kAnswerBytes = 30;                  // an acknowledgement on the wire, for timing
constexpr uint64_t kFarewellMaxNs = 3 * kMillisecond;  // until the kernel has cleaned up
constexpr unsigned kDoublingsMax = 20;

}  // namespace

ChannelEnd::ChannelEnd(FabricImpl& fabric, SimHost& process, FabricPort& port, FabricAddress local,
                       FabricAddress peer, RetryBudget budget, ChannelHandler* handler)
    : fabric_(fabric),
      process_(process),
      port_(port),
      local_(std::move(local)),
      peer_(std::move(peer)),
      subject_(fabric.world().next_subject()),
      budget_(budget),
      handler_(handler) {
  fabric_.enter(*this);
}

std::string ChannelEnd::peer_text() const {
  const std::string address = fmt::format("{}:{}", peer_.ip, peer_.port);
  if (other_ == nullptr) return address;
  return fmt::format("{} (process {} of machine {})", address, other_->process_.name(),
                     other_->process_.machine().name());
}

template <typename Action>
void ChannelEnd::deliver(uint64_t at_ns, Action action) {
  last_delivery_ns_ = std::max(last_delivery_ns_, at_ns);
  fabric_.world().push(last_delivery_ns_, EventKind::kMessage, subject_, std::move(action));
}

// --- requester

void ChannelEnd::connect(FabricPort* to_port, std::vector<std::byte> first_message) {
  initiator_ = true;
  peer_port_ = to_port;
  send(std::move(first_message));
}

void ChannelEnd::send(std::vector<std::byte> message) {
  if (!open() || process_.dead()) return;
  // Not the bytes: they hold addresses of memory, which differ from run to run.
  fabric_.world().note(message.size());
  pending_.push_back(
      {next_sequence_++, fabric_.rooms().share(std::move(message)), 0, process_.next_send()});
  transmit(pending_.back());
  arm_timer();
}

void ChannelEnd::set_retry_budget(RetryBudget budget) {
  const bool other_wait = budget.ack_timeout_ns != budget_.ack_timeout_ns;
  budget_ = budget;
  if (!other_wait) return;
  timer_armed_ = false;  // it may be far off, and armed for nothing any more
  arm_timer();
}

void ChannelEnd::transmit(Pending& pending) {
  pending.sent_ns = fabric_.world().now_ns();
  if (peer_port_ == nullptr) return;
  const std::optional<uint64_t> at_ns = fabric_.carry(port_, *peer_port_, pending.message->size());
  if (!at_ns) return;
  if (other_ != nullptr) {
    other_->deliver(*at_ns, [to = other_, &from = process_, send = pending.send,
                             sequence = pending.sequence, message = pending.message] {
      if (!from.never_sent(send)) to->request_arrived(sequence, message);
    });
    return;
  }
  // No far end yet: what is under way finds it, or makes it, on arrival at the peer's port.
  deliver(*at_ns, [from = shared_from_this(), sequence = pending.sequence,
                   message = pending.message] { from->first_arrived(sequence, message); });
}

uint64_t ChannelEnd::wait_ns() const {
  if (budget_.doubled_up_to_ns == 0) return budget_.ack_timeout_ns;
  const uint64_t doubled_ns = budget_.ack_timeout_ns << std::min(timeouts_, kDoublingsMax);
  const uint64_t wait_ns = std::min(doubled_ns, budget_.doubled_up_to_ns);
  if (budget_.give_up_ns == kNever) return wait_ns;
  const uint64_t sent_ns = pending_.front().sent_ns;
  const uint64_t end_ns = (timeouts_ == 0 ? sent_ns : stalled_since_ns_) + budget_.give_up_ns;
  return std::min(wait_ns, end_ns - std::min(sent_ns, end_ns));
}

void ChannelEnd::arm_timer() {
  if (timer_armed_ || pending_.empty()) return;
  timer_armed_ = true;
  SimWorld& world = fabric_.world();
  const uint64_t slack_ns = world.random().below(budget_.ack_timeout_ns / 8 + 1);
  const uint64_t at_ns = pending_.front().sent_ns + wait_ns() + slack_ns;
  world.push(std::max(at_ns, world.now_ns()), EventKind::kMessage, subject_,
             [self = shared_from_this(), arming = ++timer_armings_] {
               if (arming == self->timer_armings_) self->timer_due();
             });
}

void ChannelEnd::timer_due() {
  timer_armed_ = false;
  if (!open() || pending_.empty()) return;
  const uint64_t now_ns = fabric_.world().now_ns();
  if (now_ns >= pending_.front().sent_ns + wait_ns()) {
    if (timeouts_ == 0) stalled_since_ns_ = pending_.front().sent_ns;
    if (timeouts_ >= budget_.retry_count || now_ns - stalled_since_ns_ >= budget_.give_up_ns) {
      ++fabric_.count().retry_exceeded;
      fail(Errc::kTimedOut);
      return;
    }
    ++timeouts_;
    for (Pending& pending : pending_) transmit(pending);
  }
  arm_timer();
}

void ChannelEnd::answer_arrived(uint64_t sequence, const SharedBytes& answer) {
  if (!open() || process_.dead() || !port_.reachable()) return;
  // Another one than the oldest is a repetition, or follows one that was lost and will be repeated.
  if (pending_.empty() || pending_.front().sequence != sequence) return;
  pending_.pop_front();
  if (std::exchange(timeouts_, 0) != 0 && budget_.doubled_up_to_ns != 0) {
    timer_armed_ = false;  // the next one is not to wait for as long as this one had to
    arm_timer();
  }
  if (other_ != nullptr) other_->forget_answers(sequence);
  const bool first_message = initiator_ && sequence == 1;
  if (!first_message && handler_ != nullptr) handler_->answered(*answer);
}

void ChannelEnd::fail(Errc why) {
  if (!open()) return;
  broken_ = true;
  pending_.clear();
  held_.clear();
  if (!process_.dead() && handler_ != nullptr) handler_->broken(why);
}

void ChannelEnd::close(bool silent) {
  if (std::exchange(closed_, true)) return;
  fabric_.leave(*this);
  handler_ = nullptr;
  pending_.clear();
  held_.clear();
  const std::shared_ptr<ChannelEnd> other = std::exchange(other_, nullptr);
  if (other == nullptr || silent || peer_port_ == nullptr) return;
  const std::optional<uint64_t> at_ns = fabric_.carry(port_, *peer_port_, kAnswerBytes);
  if (!at_ns) return;
  const uint64_t cleanup_ns = process_.dead() ? fabric_.world().random().below(kFarewellMaxNs) : 0;
  other->deliver(*at_ns + cleanup_ns, [other] {
    if (other->port_.reachable()) other->fail(Errc::kDisconnected);
  });
}

// --- responder

void ChannelEnd::first_arrived(uint64_t sequence, const SharedBytes& message) {
  if (!open() || !peer_port_->reachable()) return;
  if (other_ != nullptr) {
    other_->request_arrived(sequence, message);
    return;
  }
  if (sequence != 1) return;
  FabricListenerImpl* const listener = fabric_.find_listener(*peer_port_, peer_.port);
  if (listener == nullptr) {
    const std::optional<uint64_t> at_ns = fabric_.carry(*peer_port_, port_, kAnswerBytes);
    if (at_ns) deliver(*at_ns, [self = shared_from_this()] { self->fail(Errc::kRefused); });
    return;
  }
  auto far = std::make_shared<ChannelEnd>(fabric_, listener->process, *peer_port_, peer_, local_,
                                          budget_, nullptr);
  far->peer_port_ = &port_;
  far->other_ = shared_from_this();
  far->expected_ = 2;
  other_ = far;
  const auto no_answer = std::make_shared<const std::vector<std::byte>>();
  far->kept_answers_.push_back({1, no_answer});
  far->send_answer(1, no_answer);
  listener->handler.incoming(std::make_unique<ChannelImpl>(far), *message);
  fabric_.connected(peer_);
}

void ChannelEnd::request_arrived(uint64_t sequence, const SharedBytes& message) {
  if (!open() || process_.dead() || !port_.reachable()) return;
  if (sequence < expected_) {
    for (const Kept& kept : kept_answers_)
      if (kept.sequence == sequence) send_answer(sequence, kept.answer);
    return;
  }
  if (sequence != expected_ + held_.size()) return;  // a gap before it, or held already
  if (process_.paused()) ++fabric_.count().to_stopped_process;
  if (handler_ == nullptr) {
    held_.push_back(message);
  } else {
    execute(message);
  }
}

void ChannelEnd::execute(const SharedBytes& message) {
  const std::shared_ptr<ChannelEnd> keep_alive = shared_from_this();
  const uint64_t sequence = expected_++;
  last_heard_ns_ = fabric_.world().now_ns();
  std::vector<std::byte> answer;
  handler_->request(*message, answer);
  fabric_.world().note(answer.size());
  if (!open()) return;
  kept_answers_.push_back({sequence, fabric_.rooms().share(std::move(answer))});
  send_answer(sequence, kept_answers_.back().answer);
}

void ChannelEnd::set_handler(ChannelHandler* handler) {
  handler_ = handler;
  if (handler != nullptr && !held_.empty())
    deliver(fabric_.world().now_ns(), [self = shared_from_this()] { self->drain_held(); });
}

void ChannelEnd::drain_held() {
  while (!held_.empty() && open() && handler_ != nullptr && !process_.dead()) {
    const SharedBytes message = std::move(held_.front());
    held_.pop_front();
    execute(message);
  }
}

void ChannelEnd::send_answer(uint64_t sequence, const SharedBytes& answer) {
  if (other_ == nullptr || peer_port_ == nullptr) return;
  if (fabric_.loses_answer(*peer_port_, port_)) return;
  const std::optional<uint64_t> at_ns =
      fabric_.carry(port_, *peer_port_, kAnswerBytes + answer->size());
  if (!at_ns) return;
  other_->deliver(*at_ns,
                  [to = other_, sequence, answer] { to->answer_arrived(sequence, answer); });
}

void ChannelEnd::forget_answers(uint64_t up_to) {
  while (!kept_answers_.empty() && kept_answers_.front().sequence <= up_to)
    kept_answers_.pop_front();
}

}  // namespace braid::base::sim
