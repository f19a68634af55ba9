#include "base/linux/executor.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

#include <utility>

// TBB is not built with the thread sanitizer, which therefore does not see that what happened
// before enqueue() happened before the work. publish() and look() say so; what TBB
// does for itself is left out.
#if defined(__SANITIZE_THREAD__)
#define BRAID_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BRAID_THREAD_SANITIZER 1
#endif
#endif
#ifdef BRAID_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
extern "C" const char* __tsan_default_suppressions() {  // NOLINT: the sanitizer's name
  return "race_top:tbb::detail::d1::enqueue_task\ncalled_from_lib:libtbb.so\n";
}
#define BRAID_NOT_CHECKED __attribute__((no_sanitize("thread")))
static void publish(void* what) {
  __tsan_release(what);
}
static void look(void* what) {
  __tsan_acquire(what);
}
#else
#define BRAID_NOT_CHECKED
static void publish(void*) {}
static void look(void*) {}
#endif

namespace braid::base {

struct Executor::Arena {
  explicit Arena(int workers)
      // TBB counts on work that computes and makes one thread less than there are cores; ours
      // blocks.
      : more_threads(tbb::global_control::max_allowed_parallelism,
                     static_cast<size_t>(workers) + 1),
        arena(workers, 0) {
    arena.initialize();
  }
  tbb::global_control more_threads;
  tbb::task_arena arena;
};

Executor::Executor(int workers_max) : workers_max_(workers_max) {}

Executor::~Executor() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return unfinished_ == 0; });
}

void Executor::execute(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!arena_) arena_ = std::make_unique<Arena>(workers_max_);
  queue_.push_back(std::move(work));
  ++unfinished_;
  publish(this);
  arena_->arena.enqueue([this]() BRAID_NOT_CHECKED {
    look(this);
    run_one();
  });
}

void Executor::run_one() {
  std::unique_lock lock(mutex_);
  {
    const auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
  }  // what the work captured goes before it counts as finished
  lock.lock();
  // Under the lock: the destructor may go on as soon as it is released.
  if (--unfinished_ == 0) idle_.notify_all();
}

}  // namespace braid::base
