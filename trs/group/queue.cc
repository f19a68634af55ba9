#include "trs/group/queue.h"

#include <algorithm>
#include <bit>

namespace braid::trs::group {

using base::Errc;

namespace {
/// Many turns of a permit at a server that is well, few of a user who waits for another one's.
constexpr uint64_t kHoldNs = 10 * base::kMillisecond;
constexpr uint64_t kHoldMaxNs = base::kSecond;
}  // namespace

Queue::Queue(base::Reactor& reactor)
    : reactor_(reactor), hold_(&Queue::held_long_enough, this), hold_ns_(kHoldNs) {
  waiter_.permit_free = &permit_free;
  waiter_.context = this;
}

Queue::~Queue() = default;

template <typename Function>
void Queue::run_here(Function function) {
  reactor_.post([alive = std::weak_ptr<char>(alive_), run = std::move(function)]() mutable {
    if (!alive.expired()) run();
  });
}

void Queue::start() {
  run_here([this] { reactor_.add(*this); });
}

void Queue::stop(Done done) {
  run_here([this, done = std::move(done)] {
    (void)end_requests();  // the end of the last leg may have brought some
    base::Poller::unlink();
    done();
  });
}

void Queue::attach(size_t slot, ClientQueue& queue, const SessionId& session, LegPolicy policy,
                   Done done) {
  run_here([this, slot, &queue, session, policy, done = std::move(done)] {
    Leg& leg = legs_[slot];
    leg.queue = &queue;
    leg.session = session;
    leg.policy = policy;
    sort();
    done();
  });
}

void Queue::detach(size_t slot, Done done) {
  run_here([this, slot, done = std::move(done)]() mutable {
    Leg& leg = legs_[slot];
    leg.detached = std::move(done);
    if (waits_at_ == &leg) stop_waiting();
    sort();
    const LegMask bit = LegMask{1} << slot;
    for (GroupRequest* each = waiting_.front(); each != nullptr; each = waiting_.next(*each)) {
      if ((each->due_ & bit) != 0) each->results[slot] = {.status = Errc::kCanceled};
      each->due_ &= ~bit;
    }
    (void)serve();
    (void)take_back(leg);
  });
}

/// Who is gathering began by the old order.
void Queue::sort() {
  if (GroupRequest* const first = waiting_.front()) let_go(*first);
  order_count_ = 0;
  for (size_t slot = 0; slot < kLegsMax; ++slot) {
    if (legs_[slot].sends()) order_[order_count_++] = slot;
  }
  std::sort(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(order_count_),
            [this](size_t a, size_t b) { return legs_[a].session < legs_[b].session; });
}

void Queue::submit(GroupRequest& request) {
  ++statistics_.in_flight;
  request.due_ = 0;
  request.running_ = 0;
  for (size_t i = 0; i < order_count_; ++i) {
    request.due_ |= request.legs & LegMask{1} << order_[i];
  }
  // What was asked for and is not there has a result too, unless all were.
  const LegMask missing = request.legs == kAllLegs ? 0 : request.legs & kAllLegs & ~request.due_;
  for (size_t slot = 0; slot < kLegsMax; ++slot) {
    if ((missing >> slot & 1) != 0) request.results[slot] = {.status = Errc::kCanceled};
  }
  request.sent_to = request.due_ | missing;
  if (request.direction == Direction::kRead && std::popcount(request.sent_to) != 1) {
    request.due_ = request.sent_to = 0;
  }
  if (request.due_ == 0) return ending_.push_back(request);
  ++statistics_.waiting;
  waiting_.push_back(request);
  if (waiting_.front() == &request) (void)serve();
}

/// As many as there are permits for, in their order.
bool Queue::serve() {
  bool did = false;
  while (GroupRequest* const request = waits_at_ == nullptr ? waiting_.front() : nullptr) {
    if (!gather(*request)) break;
    waiting_.pop_front();
    --statistics_.waiting;
    if (hold_.pending()) reactor_.cancel(hold_);
    hold_ns_ = kHoldNs;
    send(*request);
    did = true;
  }
  return did;
}

/// False: it waits for a permit.
bool Queue::gather(GroupRequest& request) {
  for (size_t i = 0; i < order_count_; ++i) {
    const size_t slot = order_[i];
    ClientRequest& part = request.parts_[slot].request;
    if ((request.due_ >> slot & 1) == 0 || part.permit) continue;
    Leg& leg = legs_[slot];
    const bool away = !leg.queue->has_path();
    if (away && leg.policy == LegPolicy::kFailFast) continue;
    part.permit = leg.queue->acquire();
    if (part.permit) continue;
    if (away) let_go(request);
    wait_at(leg);
    hold(request);
    return false;
  }
  return true;
}

void Queue::let_go(GroupRequest& request) {
  for (GroupPart& part : request.parts_) part.request.permit.release();
  if (hold_.pending()) reactor_.cancel(hold_);
}

/// From the first permit that it lacks on, wherever it waits after that.
void Queue::hold(GroupRequest& request) {
  const bool holds = std::any_of(request.parts_.begin(), request.parts_.end(),
                                 [](const GroupPart& part) { return bool(part.request.permit); });
  if (holds && !hold_.pending()) reactor_.schedule_after(hold_, hold_ns_);
}

void Queue::held_long_enough(base::Timer& timer) {
  auto& self = *static_cast<Queue*>(timer.context);
  self.hold_ns_ = std::min(2 * self.hold_ns_, kHoldMaxNs);
  self.let_go(*self.waiting_.front());
}

void Queue::wait_at(Leg& leg) {
  waits_at_ = &leg;
  leg.queue->wait_for_permit(waiter_);
}

void Queue::stop_waiting() {
  waits_at_ = nullptr;
  waiter_.unlink();
}

void Queue::permit_free(PermitWaiter& waiter) {
  auto& self = *static_cast<Queue*>(waiter.context);
  self.waits_at_ = nullptr;
  (void)self.serve();
}

void Queue::send(GroupRequest& request) {
  request.running_ = 1;
  const LegMask due = std::exchange(request.due_, 0);
  for (size_t slot = 0; slot < kLegsMax; ++slot) {
    if ((due >> slot & 1) != 0) send_part(request, slot);
  }
  part_over(request);
}

/// Without a permit: the leg has no path and is not waited for.
void Queue::send_part(GroupRequest& request, size_t slot) {
  Leg& leg = legs_[slot];
  GroupPart& part = request.parts_[slot];
  if (!part.request.permit) {
    request.results[slot] = {.status = Errc::kDisconnected};
    return;
  }
  part.whole = &request;
  part.queue = this;
  part.slot = slot;
  part.request.direction = request.direction;
  part.request.user_header = request.user_header;
  part.request.data = request.data;
  part.request.words = request.words;
  part.request.has_words = request.has_words;
  part.request.done = &part_done;
  part.request.context = &part;
  ++request.running_;
  leg.parts.push_back(part);
  leg.queue->submit(part.request);
}

void Queue::part_done(ClientRequest& ended, Errc status) {
  auto& part = *static_cast<GroupPart*>(ended.context);
  Queue& self = *part.queue;
  const Leg& leg = self.legs_[part.slot];
  part.unlink();
  LegResult& result = part.whole->results[part.slot];
  result.answered = ended.answered();
  // Taken back by us, for want of a path.
  const bool no_path = !result.answered && status == Errc::kCanceled && leg.sends() &&
                       leg.policy == LegPolicy::kFailFast;
  result.status = no_path ? Errc::kDisconnected : status;
  result.has_answer_words = ended.has_answer_words;
  result.answer_words = ended.answer_words;
  self.part_over(*part.whole);
}

void Queue::part_over(GroupRequest& request) {
  if (--request.running_ == 0) ending_.push_back(request);
}

bool Queue::check_wait() {
  if (waits_at_ == nullptr || waits_at_->queue->has_path()) return false;
  GroupRequest& first = *waiting_.front();
  if (waits_at_->policy == LegPolicy::kWait) {
    let_go(first);
    return false;
  }
  stop_waiting();
  return serve();
}

/// Of a leg that sends no more: what its session has not on a wire ends in its next turn.
bool Queue::take_back(Leg& leg) {
  for (GroupPart* part = leg.parts.front(); part != nullptr; part = leg.parts.next(*part)) {
    (void)leg.queue->cancel(part->request);
  }
  if (!leg.detached || !leg.parts.empty()) return false;
  leg.queue = nullptr;
  const Done detached = std::exchange(leg.detached, nullptr);
  detached();
  return true;
}

bool Queue::poll() {
  bool did = check_wait();
  for (Leg& leg : legs_) {
    if (leg.queue == nullptr) continue;
    const bool fails = leg.policy == LegPolicy::kFailFast && !leg.queue->has_path();
    if (leg.detached || (fails && !leg.parts.empty())) did |= take_back(leg);
  }
  return end_requests() || did;
}

/// Not those that end because `done` submits them again: the reactor has others.
bool Queue::end_requests() {
  bool did = false;
  base::IntrusiveList<GroupRequest> ended;
  ended.take_all(ending_);
  while (GroupRequest* const request = ended.pop_front()) {
    --statistics_.in_flight;
    ++statistics_.requests;
    request->done(*request);
    did = true;
  }
  return did;
}

GroupStatistics Queue::statistics() const {
  return statistics_;
}

}  // namespace braid::trs::group
