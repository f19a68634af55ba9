// Worker threads for calls that wait. Each may wait for as long as a device does, so there are as
// many threads as jobs have ever waited at once, up to a maximum: a hung one holds up no other.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace braid::base {

class Executor {
 public:
  explicit Executor(size_t threads_max) : threads_max_(threads_max) {}
  /// Waits until all work is done.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Any thread. Begun in order of submission, at once while there are less than `threads_max` jobs
  /// and the system has threads to give. Throws std::system_error if it has not even one.
  void execute(std::function<void()> work);

 private:
  void run_jobs();

  const size_t threads_max_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;  // mutex_
  size_t idle_ = 0;                          // threads in wake_; mutex_
  bool ending_ = false;                      // mutex_
  std::vector<std::thread> threads_;         // mutex_; never fewer until the end
};

}  // namespace braid::base
