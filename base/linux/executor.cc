#include "base/linux/executor.h"

#include <pthread.h>

#include <system_error>
#include <utility>

namespace braid::base {

Executor::~Executor() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status Executor::add_thread() {
  try {
    threads_.emplace_back(&Executor::run_jobs, this);
  } catch (const std::system_error& failure) {
    return sys_error(failure.code().value(), "starting a thread for calls that wait");
  }
  ::pthread_setname_np(threads_.back().native_handle(), "braid-worker");
  return {};
}

void Executor::execute(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  if (idle_ >= queue_.size()) return wake_.notify_one();
  if (threads_.size() == threads_max_) return;
  const Status added = add_thread();
  if (added.ok()) {
    short_told_ = false;
  } else if (!std::exchange(short_told_, true)) {
    log_.error(
        "{}: files and memory wait for the {} threads that there are; raise the limit of "
        "tasks (ulimit -u, TasksMax=)",
        added.error().message(), threads_.size());
  }
}

bool Executor::is_idle() {
  const std::lock_guard lock(mutex_);
  return idle_ > queue_.size();
}

void Executor::run_jobs() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    wake_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    --idle_;
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it captured goes on this thread, not under the lock
    lock.lock();
  }
}

}  // namespace braid::base
