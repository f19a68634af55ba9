#include "base/reactor.h"

#include <algorithm>

#include "base/reactor_private.h"

namespace braid::base {
namespace {

// A turn takes no more messages than this, so that eager senders cannot keep timers and pollers
// waiting.
constexpr int kMessagesPerTurnMax = 256;
// A fence interrupts all processors: those that are asked for meanwhile are one.
constexpr uint64_t kFenceEveryNs = 2 * kMillisecond;

}  // namespace

/// The coroutine at the root of a detached task. Its frame owns the task, and with it all frames
/// that wait for each other below; it frees itself when the task ends.
struct Reactor::Detached {
  struct promise_type : ListNode {
    Detached get_return_object() {
      return Detached{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

Reactor::Detached Reactor::run_detached(Task<void> task) {
  // clang 14 with optimization never ends a coroutine that frees itself at its end and awaits a
  // parameter.
  Task<void> own = std::move(task);
  co_await own;
}

Result<std::unique_ptr<Reactor>> Reactor::create(Host& host, const Options& options) {
  BRAID_TRY(std::unique_ptr<IoQueue> io, host.create_io_queue());
  return std::unique_ptr<Reactor>(new Reactor(host, options, std::move(io)));
}

Reactor::Reactor(Host& host, const Options& options, std::unique_ptr<IoQueue> io)
    : host_(host),
      options_(options),
      log_(host.log().child(options.name)),
      io_(std::move(io)),
      mailbox_(std::make_shared<Mailbox>()),
      now_ns_(host.now_ns()),
      spin_budget_(options.poll_budget_ns) {
  mailbox_->reactor = this;
}

Reactor::~Reactor() {
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->reactor = nullptr;
  }
  while (ListNode* root = detached_.front()) {
    auto& promise = static_cast<Detached::promise_type&>(*root);
    std::coroutine_handle<Detached::promise_type>::from_promise(promise).destroy();
  }
  while (!timers_.empty()) cancel(timers_.top());
  forget_messages();
}

void Reactor::forget_messages() {
  while (Message* message = messages_.pop()) {
    if (message->run == &FunctionMessage::call) delete static_cast<FunctionMessage*>(message);
  }
}

void Reactor::schedule(Timer& timer, uint64_t deadline_ns) {
  if (timer.reactor_ != nullptr) timer.reactor_->cancel(timer);
  timer.reactor_ = this;
  timer.deadline_ns_ = deadline_ns;
  timer.order_ = timers_scheduled_++;
  timers_.insert(timer);
}

void Reactor::schedule_after(Timer& timer, uint64_t delay_ns) {
  if (!in_turn_) refresh_now();  // the last turn may be long ago
  schedule(timer, delay_ns < kNever - now_ns_ ? now_ns_ + delay_ns : kNever);
}

void Reactor::cancel(Timer& timer) {
  if (timer.reactor_ == nullptr) return;
  BRAID_ASSERT(timer.reactor_ == this);
  timers_.remove(timer);
  timer.reactor_ = nullptr;
}

void Reactor::spawn(Task<void> task) {
  if (!in_turn_) refresh_now();
  const Detached root = run_detached(std::move(task));
  detached_.push_front(root.handle.promise());
  root.handle.resume();
}

void Reactor::post(Message& message) {
  messages_.push(message);
  if (may_sleep_.load(std::memory_order_seq_cst)) io_->wake();
}

void Reactor::post(std::function<void()> function) {
  post(*new FunctionMessage(std::move(function)));
}

void Reactor::stop() {
  stop_.store(true, std::memory_order_release);
  io_->wake();
}

bool Reactor::turn() {
  BRAID_ASSERT(!in_turn_);
  in_turn_ = true;
  begin_turn();
  bool did = run_messages();
  did |= run_timers();
  did |= run_ready();
  did |= poll_pollers();
  did |= io_->poll();
  end_turn();
  if (fence_asked_ && now_ns_ - fenced_ns_ >= kFenceEveryNs) fence();
  in_turn_ = false;
  return did;
}

void Reactor::begin_turn() {
  if (may_sleep_.load(std::memory_order_relaxed)) may_sleep_.store(false);
  refresh_now();
  lateness_ns_ = may_have_slept_ ? 0 : now_ns_ - turn_began_ns_;
  if (const uint64_t due_ns = next_deadline_ns(); due_ns < now_ns_) {
    // A timer may have been asked for when its time had already passed.
    const uint64_t since_ns = std::max(due_ns, turn_began_ns_);
    lateness_ns_ = std::max(lateness_ns_, now_ns_ - since_ns);
  }
  turn_began_ns_ = now_ns_;
  may_have_slept_ = false;
}

bool Reactor::run_messages() {
  int count = 0;
  while (count < kMessagesPerTurnMax) {
    Message* const message = messages_.pop();
    if (message == nullptr) break;
    ++count;
    message->run(*message);
  }
  return count > 0;
}

bool Reactor::run_timers() {
  // What callbacks schedule waits for the next turn, even if it is due.
  const uint64_t end = timers_scheduled_;
  bool did = false;
  while (!timers_.empty()) {
    Timer& timer = timers_.top();
    if (timer.deadline_ns_ > now_ns_ || timer.order_ >= end) break;
    cancel(timer);
    timer.callback_(timer);
    did = true;
  }
  return did;
}

bool Reactor::run_ready() {
  if (ready_.empty()) return false;
  IntrusiveList<Resumable> round;
  round.take_all(ready_);
  while (Resumable* node = round.pop_front()) node->handle.resume();
  return true;
}

bool Reactor::poll_pollers() {
  bool did = poll_each(pollers_);
  if (seldom_.empty()) return did;
  const bool fenced = fences_ != seldom_fence_;
  if (now_ns_ - seldom_ns_ < kSeldomNs && !fenced) return did;
  seldom_ns_ = now_ns_;
  seldom_fence_ = fences_;
  return poll_each(seldom_, fenced ? SIZE_MAX : kSeldomMax) || did;
}

/// Each goes to the back before it is polled, so that it may unlink itself and any other. `most`:
/// of them, those that have waited longest.
bool Reactor::poll_each(IntrusiveList<Poller>& pollers, size_t most) {
  bool did = false;
  pollers.push_back(round_end_);
  for (; most > 0; --most) {
    Poller* const poller = pollers.pop_front();
    if (poller == &round_end_) return did;
    pollers.push_back(*poller);
    did |= poller->poll();
  }
  round_end_.unlink();
  return did;
}

void Reactor::fence() {
  if (!std::exchange(fence_asked_, false)) return;
  host_.heavy_fence();
  ++fences_;
  fenced_ns_ = now_ns_;
}

bool Reactor::arm_pollers() {
  for (auto* const pollers : {&pollers_, &seldom_}) {
    for (Poller* each = pollers->front(); each != nullptr; each = pollers->next(*each))
      each->begin_arm();
  }
  fence();
  return arm_each(pollers_) && arm_each(seldom_);
}

bool Reactor::arm_each(IntrusiveList<Poller>& pollers) {
  bool all = true;
  pollers.push_back(round_end_);
  for (Poller* poller = pollers.pop_front(); poller != &round_end_; poller = pollers.pop_front()) {
    pollers.push_back(*poller);
    if (all) all = poller->arm();
  }
  return all;
}

bool Reactor::awaits() {
  if (io_->in_flight() > 0) return true;
  for (auto* const pollers : {&pollers_, &seldom_}) {
    for (Poller* each = pollers->front(); each != nullptr; each = pollers->next(*each)) {
      if (each->awaits()) return true;
    }
  }
  return false;
}

bool Reactor::prepare_sleep() {
  BRAID_ASSERT(!in_turn_);
  may_sleep_.store(true, std::memory_order_seq_cst);
  begin_calls();
  const bool armed = messages_.empty() && ready_.empty() && arm_pollers();
  end_turn();
  if (armed) {
    may_have_slept_ = true;
    return true;
  }
  may_sleep_.store(false, std::memory_order_relaxed);
  return false;
}

void Reactor::step() {
  if (turn()) {
    spin_budget_.worked(now_ns_, *this);
    return;
  }
  if (spin_budget_.spent(now_ns_, *this) && prepare_sleep()) {
    spin_budget_.sleeps();
    io_->wait(next_deadline_ns());
  } else {
    host_.yield();
  }
}

void Reactor::run() {
  while (!stop_.load(std::memory_order_acquire)) step();
  stop_.store(false, std::memory_order_relaxed);
}

}  // namespace braid::base
