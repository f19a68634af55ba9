// What tasks wait for on a reactor: a delay, work on another thread, a limit in time, a condition.
//
// Each awaiter unlinks itself in its destructor, so that a task may be destroyed at any suspension.
// Awaiters neither copy nor move: `co_await` them where they are made.
#pragma once

#include <coroutine>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/reactor.h"

namespace braid::base {

class Reactor::SleepAwaiter {
 public:
  SleepAwaiter(Reactor& reactor, uint64_t delay_ns)
      : reactor_(reactor), delay_ns_(delay_ns), timer_(&SleepAwaiter::fired, this) {}
  SleepAwaiter(const SleepAwaiter&) = delete;
  SleepAwaiter& operator=(const SleepAwaiter&) = delete;

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    reactor_.schedule_after(timer_, delay_ns_);
  }
  void await_resume() const noexcept {}

 private:
  static void fired(Timer& timer) { static_cast<SleepAwaiter*>(timer.context)->waiter_.resume(); }
  Reactor& reactor_;
  const uint64_t delay_ns_;
  std::coroutine_handle<> waiter_;
  Timer timer_;
};

class Reactor::OffloadAwaiter {
 public:
  OffloadAwaiter(Reactor& reactor, std::function<void()> work);
  ~OffloadAwaiter();
  OffloadAwaiter(const OffloadAwaiter&) = delete;
  OffloadAwaiter& operator=(const OffloadAwaiter&) = delete;

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter);
  void await_resume() const noexcept {}

 private:
  struct State;
  Host& host_;
  std::shared_ptr<State> state_;
};

inline Reactor::SleepAwaiter Reactor::sleep_ns(uint64_t delay_ns) {
  return SleepAwaiter(*this, delay_ns);
}

inline Reactor::OffloadAwaiter Reactor::offload(std::function<void()> work) {
  return OffloadAwaiter(*this, std::move(work));
}

namespace await_detail {

/// Runs a task and resumes the waiter when it is done or the time is up, whichever is first.
template <typename T>
class TimeLimit {
 public:
  TimeLimit(Reactor& reactor, Task<T>& task, uint64_t timeout_ns)
      : reactor_(reactor),
        timeout_ns_(timeout_ns),
        task_(task.operator co_await()),
        timer_(&TimeLimit::fired, this) {}
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  bool await_ready() const noexcept { return task_.await_ready(); }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    if (timeout_ns_ != kNever) reactor_.schedule_after(timer_, timeout_ns_);
    return task_.await_suspend(waiter);
  }
  void await_resume() noexcept {
    if (timer_.pending()) reactor_.cancel(timer_);
  }

 private:
  static void fired(Timer& timer) { static_cast<TimeLimit*>(timer.context)->waiter_.resume(); }
  Reactor& reactor_;
  const uint64_t timeout_ns_;
  typename Task<T>::Awaiter task_;
  std::coroutine_handle<> waiter_;
  Timer timer_;
};

}  // namespace await_detail

template <typename T>
Task<std::optional<T>> Reactor::with_timeout(Task<T> task, uint64_t timeout_ns) {
  static_assert(!std::is_void_v<T>, "a task without a value cannot say whether it ended");
  await_detail::TimeLimit<T> limit(*this, task, timeout_ns);
  co_await limit;
  std::optional<T> value;
  if (task.done()) value.emplace(task.take());
  co_return value;
}

/// A condition of one thread: tasks wait until it is notified.
///
///   while (!ready) co_await signal.wait();
///
/// Destroying it while tasks wait is an error of the program.
class Signal {
 public:
  explicit Signal(Reactor& reactor) : reactor_(reactor) {}
  ~Signal() { BRAID_ASSERT(waiters_.empty()); }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  class Awaiter : private Resumable {
   public:
    explicit Awaiter(Signal& signal) : signal_(signal) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) {
      handle = waiter;
      signal_.waiters_.push_back(*this);
    }
    void await_resume() const noexcept {}

   private:
    Signal& signal_;
  };

  /// Returns after the next notify_all().
  Awaiter wait() { return Awaiter(*this); }
  /// All who wait now go on in the reactor's next turn, in the order in which they began to wait.
  void notify_all() {
    while (Resumable* waiter = waiters_.pop_front()) reactor_.resume_later(*waiter);
  }
  bool has_waiters() const { return !waiters_.empty(); }

 private:
  Reactor& reactor_;
  IntrusiveList<Resumable> waiters_;
};

}  // namespace braid::base
