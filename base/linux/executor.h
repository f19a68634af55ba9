// Worker threads for calls that wait. Each may wait for as long as a device does, so there are as
// many threads as jobs have ever waited at once, up to a maximum: a hung one holds up no other.
// Where the system has no more to give, jobs wait for those there are.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace braid::base {

class Executor {
 public:
  /// `log` outlives it, and is told of threads that cannot be had.
  Executor(size_t threads_max, Logger& log) : threads_max_(threads_max), log_(log) {}
  /// Waits until all work is done.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Any thread. Begun in order of submission, at once while there are less than `threads_max` jobs
  /// and the system has threads to give. If it has not even one, when one is had for a later job.
  void execute(std::function<void()> work);
  /// Any thread. Whether a thread waits for a job.
  bool is_idle();

 private:
  Status add_thread();  // under the mutex
  void run_jobs();

  const size_t threads_max_;
  Logger& log_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;  // mutex_
  size_t idle_ = 0;                          // threads in wake_; mutex_
  bool ending_ = false;                      // mutex_
  bool short_told_ = false;                  // since a thread was had; mutex_
  std::vector<std::thread> threads_;         // mutex_; never fewer until the end
};

}  // namespace braid::base
