// Worker threads for blocking and long work: a task arena of TBB, made when first used.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace braid::base {

class Executor {
 public:
  explicit Executor(int workers_max);
  /// Waits until all work is done.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Any thread. In order of submission, several at a time.
  void execute(std::function<void()> work);

 private:
  struct Arena;
  void run_one();

  const int workers_max_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> queue_;  // mutex_
  size_t unfinished_ = 0;                    // queued or running; mutex_
  std::unique_ptr<Arena> arena_;             // mutex_, set once
};

}  // namespace braid::base
