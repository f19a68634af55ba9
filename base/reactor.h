// Reactor: one thread's event loop (design decision D2). It owns timers, detached tasks, pollers
// and an IoQueue.
//
// A reactor polls while there is work and for `poll_budget_ns` after (longer while it waits for an
// answer, base/spin_budget.h); then every poller arms its wake-up source and the reactor sleeps in
// one wait. An empty round of a spinning reactor ends in sched_yield. In simulation nobody calls
// run(): the world calls turn() and, when it returns false, prepare_sleep(), and decides by virtual
// time when to call again.
//
// Threads: everything here on the reactor's own thread, except post(), wake() and stop(). Whoever
// posts keeps the reactor alive until its post() has returned.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/host.h"
#include "base/intrusive_list.h"
#include "base/log.h"
#include "base/message_queue.h"
#include "base/spin_budget.h"
#include "base/task.h"
#include "base/timer.h"

namespace braid::base {

/// Something that is polled each turn: a completion queue, a ring.
class Poller : public ListNode {
 public:
  virtual ~Poller() = default;
  /// Does what there is to do, within bounds (say 64 items). True if it did anything. May add and
  /// remove pollers, itself too.
  virtual bool poll() = 0;
  /// Before arm(), of all pollers: ask the source for a wake-up, where that is cheaper for many
  /// together (Reactor::ask_fence()).
  virtual void begin_arm() {}
  /// Before sleep: ask the source for a wake-up, then look once more. False: there is work, do not
  /// sleep. May be followed by poll() without a sleep between.
  virtual bool arm() = 0;
  /// Whether somebody owes it an answer, so that it is worth to look for longer before a sleep.
  virtual bool awaits() const { return false; }
};

/// Something that is better done once for all that a turn asked of it: a send of what was posted.
class TurnEnd : public ListNode {
 public:
  virtual ~TurnEnd() = default;
  /// Was taken out of the list. May ask for further ends, its own too: they come in the same turn.
  virtual void turn_ends() = 0;
};

/// A suspended coroutine in a list: of waiters, or of the reactor's coroutines to resume.
struct Resumable : ListNode {
  std::coroutine_handle<> handle;
};

class Reactor {
 public:
  struct Options {
    std::string name = "reactor";
    uint64_t poll_budget_ns = 50 * kMicrosecond;  // 0: never spin; kNever: never sleep
  };
  static Result<std::unique_ptr<Reactor>> create(Host& host, const Options& options);
  /// Cancels detached tasks, the newest first; pollers and timers must be gone or are unlinked.
  /// Functions posted and not yet run are dropped; so are Messages, which stay the sender's.
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  Host& host() { return host_; }
  Logger& log() { return log_; }
  IoQueue& io() { return *io_; }
  const std::string& name() const { return options_.name; }

  /// The time read at the start of this turn. Use it in data paths: it costs a load.
  uint64_t now_ns() const { return now_ns_; }
  /// How much later than it should this turn began: behind the first timer that was due, or behind
  /// the turn before, unless it slept between (it was descheduled, paused or busy). Heartbeats use
  /// it to excuse themselves.
  uint64_t last_lateness_ns() const { return lateness_ns_; }

  /// When the last turn began.
  uint64_t turn_began_ns() const { return turn_began_ns_; }

  void add(Poller& poller) { pollers_.push_back(poller); }
  void remove(Poller& poller) { poller.unlink(); }
  /// Adds it as one that is polled each kSeldomNs only, of many so many at a time in turn, and in
  /// the turn behind each fence: for who has only to wait for a fence that it has asked for.
  void poll_seldom(Poller& poller) { seldom_.push_back(poller); }
  static constexpr uint64_t kSeldomNs = 20 * kMicrosecond;
  static constexpr size_t kSeldomMax = 32;

  /// At the end of the present turn; outside of one at the end of the next, which comes soon, or
  /// with end_turn(). Once, however often it is asked for. Unlinking it takes it back.
  void at_turn_end(TurnEnd& end) {
    if (end.linked()) return;
    turn_ends_.push_back(end);
    if (!in_turn_ && !end_follows_) io_->wake();
  }

  /// A heavy_fence() of the host soon, one for all that ask: before a sleep, or after a turn, in 2
  /// ms. Returns what fences() is then.
  uint64_t ask_fence() {
    fence_asked_ = true;
    return fences_ + 1;
  }
  uint64_t fences() const { return fences_; }
  /// Now, if one was asked for.
  void fence();

  /// Reschedules if pending. Runs at the first turn at or after the deadline; a deadline that has
  /// passed means the next turn.
  void schedule(Timer& timer, uint64_t deadline_ns);
  void schedule_after(Timer& timer, uint64_t delay_ns);
  void cancel(Timer& timer);

  /// Starts a task that belongs to the reactor: runs to its first suspension now, is destroyed when
  /// it ends or with the reactor.
  void spawn(Task<void> task);
  /// Resumes a coroutine in the next turn. The node belongs to an awaiter, which unlinks it when it
  /// is destroyed.
  void resume_later(Resumable& node) { ready_.push_back(node); }

  // --- from any thread
  /// Messages of one sender run in their order. No allocation, no lock; a system call only if the
  /// reactor sleeps.
  void post(Message& message);
  /// Runs a function on this reactor. Allocates: control paths only.
  void post(std::function<void()> function);
  void wake() { io_->wake(); }
  /// Makes the present or next run() return.
  void stop();
  /// Drops what was posted and has not run. For the death of a simulated process, whose objects are
  /// destroyed in any order: a message must not outlive the object that it is part of.
  void forget_messages();

  /// An answer that a poller awaits() has come.
  void count_answer() { ++answers_; }

  // --- driving
  /// One round: messages, timers due, pollers, IoQueue, ends. True if anything was done.
  bool turn();
  /// For calls from outside a turn by who does not turn at once: end_turn() follows them.
  void begin_calls() { end_follows_ = true; }
  /// Runs what at_turn_end() keeps.
  void end_turn() {
    while (TurnEnd* const end = turn_ends_.pop_front()) end->turn_ends();
    end_follows_ = false;
  }
  /// Arms every poller and checks for messages. True: sleep until next_deadline_ns() or a wake-up
  /// is safe.
  bool prepare_sleep();
  /// Whether an operation is under way in the kernel, or an answer to a poller.
  bool awaits();
  /// How many of either have come.
  uint64_t answers() const { return answers_ + io_->completed(); }
  /// When the first timer is due; kNever without one.
  uint64_t next_deadline_ns() const {
    return timers_.empty() ? kNever : timers_.top().deadline_ns();
  }
  /// turn() until stop(), spinning and sleeping as the options say.
  void run();
  /// turn() until the task is done (spins and sleeps as run()); for main programs and tests on
  /// LinuxHost.
  template <typename T>
  T run_until_done(Task<T> task) {
    refresh_now();
    task.start();
    while (!task.done()) step();
    return task.take();
  }

  // --- awaitables, for tasks on this reactor (base/await.h)
  class SleepAwaiter;
  class OffloadAwaiter;
  /// `co_await reactor.sleep_ns(5 * kMillisecond);`
  SleepAwaiter sleep_ns(uint64_t delay_ns);
  /// Runs `work` on a worker thread and resumes here when it is done. If the task is cancelled
  /// meanwhile, the work still ends; `work` must own all that it touches. Name the closure before
  /// the co_await (task.h, trap).
  OffloadAwaiter offload(std::function<void()> work);
  /// The task's value, or nothing if `timeout_ns` passed first (kNever: no limit); then the task is
  /// destroyed.
  template <typename T>
  Task<std::optional<T>> with_timeout(Task<T> task, uint64_t timeout_ns);

 private:
  struct Detached;
  struct FunctionMessage;
  struct Mailbox;
  /// Marks the end of a round in `pollers_` while the round runs.
  class RoundEnd : public Poller {
   public:
    bool poll() override { return false; }
    bool arm() override { return true; }
  };

  Reactor(Host& host, const Options& options, std::unique_ptr<IoQueue> io);
  static Detached run_detached(Task<void> task);
  void refresh_now() { now_ns_ = host_.now_ns(); }
  void begin_turn();
  bool run_messages();
  bool run_timers();
  bool run_ready();
  bool poll_pollers();
  bool poll_each(IntrusiveList<Poller>& pollers, size_t most = SIZE_MAX);
  bool arm_each(IntrusiveList<Poller>& pollers);
  bool arm_pollers();
  void step();

  Host& host_;
  const Options options_;
  Logger log_;
  const std::unique_ptr<IoQueue> io_;
  // Lets workers that outlive the reactor find out that it is gone.
  const std::shared_ptr<Mailbox> mailbox_;

  uint64_t now_ns_ = 0;
  uint64_t turn_began_ns_ = 0;
  uint64_t lateness_ns_ = 0;
  SpinBudget spin_budget_;
  uint64_t answers_ = 0;  // to pollers
  bool in_turn_ = false;
  bool end_follows_ = false;
  bool may_have_slept_ = true;

  IntrusiveList<Poller> pollers_;
  IntrusiveList<Poller> seldom_;  // poll_seldom()
  uint64_t seldom_ns_ = 0;        // when those were polled last
  uint64_t seldom_fence_ = 0;     // fences() then
  RoundEnd round_end_;
  IntrusiveList<TurnEnd> turn_ends_;
  bool fence_asked_ = false;
  uint64_t fences_ = 0;
  uint64_t fenced_ns_ = 0;  // when the last one was
  IntrusiveList<Resumable> ready_;
  IntrusiveList<ListNode> detached_;  // promises of running detached tasks, the newest first
  TimerHeap timers_;
  uint64_t timers_scheduled_ = 0;

  MessageQueue messages_;
  // Set before the last look for messages ahead of a sleep. A sender that reads false after its
  // push knows that this look is still to come.
  std::atomic<bool> may_sleep_{false};
  std::atomic<bool> stop_{false};
};

}  // namespace braid::base

#include "base/await.h"  // IWYU pragma: export
