// Task<T>: a coroutine that starts when awaited and resumes its awaiter when done. For control
// paths only.
//
// One thread: a task runs on the reactor that awaits it. Ownership: the Task object owns the frame;
// destroying a Task that is suspended cancels it, which destroys its locals and whatever it awaits
// (awaiters unlink themselves in their destructors). Detached tasks belong to their reactor:
// Reactor::spawn. An exception that leaves a task is a bug and ends the process.
//
// Trap (g++ 12): an aggregate temporary inside a full expression with co_await is destroyed twice,
// and so is a temporary closure that captures something with a destructor. Name options and
// closures before the co_await (`auto work = [owned] {...}; co_await
// reactor.offload(std::move(work));`) and give every awaiter a constructor; tests/lint checks it.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "base/result.h"

namespace braid::base {

template <typename T>
class Task;

namespace task_detail {

struct FinalAwaiter {
  FinalAwaiter() noexcept {}
  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
    return self.promise().continuation;
  }
  void await_resume() const noexcept {}
};

struct PromiseBase {
  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  std::coroutine_handle<> continuation = std::noop_coroutine();
};

template <typename T>
struct Promise : PromiseBase {
  Task<T> get_return_object();
  template <typename U>
  void return_value(U&& v) {
    value.emplace(std::forward<U>(v));
  }
  std::optional<T> value;
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() const noexcept {}
};

}  // namespace task_detail

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = task_detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Task() { reset(); }

  class Awaiter {
   public:
    explicit Awaiter(Handle handle) : handle_(handle) {}
    bool await_ready() const noexcept { return handle_.done(); }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
      handle_.promise().continuation = awaiting;
      return handle_;
    }
    T await_resume() {
      if constexpr (!std::is_void_v<T>) return std::move(*handle_.promise().value);
    }

   private:
    Handle handle_;
  };

  /// Starts the task and resumes the awaiting coroutine with its value. At most once.
  Awaiter operator co_await() && { return Awaiter(handle_); }
  Awaiter operator co_await() & { return Awaiter(handle_); }

  explicit operator bool() const { return handle_ != nullptr; }
  bool done() const { return handle_ && handle_.done(); }

  /// For Reactor and tests: runs until the first suspension.
  void start() { handle_.resume(); }
  /// For Reactor: gives up ownership of the frame.
  Handle release() { return std::exchange(handle_, nullptr); }
  /// The value of a finished task.
  T take() {
    BRAID_ASSERT(done());
    if constexpr (!std::is_void_v<T>) return std::move(*handle_.promise().value);
  }

 private:
  void reset() {
    if (handle_) std::exchange(handle_, nullptr).destroy();
  }
  Handle handle_ = nullptr;
};

namespace task_detail {
template <typename T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise>::from_promise(*this));
}
}  // namespace task_detail

}  // namespace braid::base
