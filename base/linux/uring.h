// IoQueue over io_uring.
//
// An idle poll() makes no system call: completions are seen in the ring that the kernel shares with
// us, and the kernel flags there when it has more to deliver (IORING_SETUP_TASKRUN_FLAG). File
// operations submitted since the last poll() are handed over two by two, with a call each. A
// bounded number of them is in the kernel, each with a worker thread to itself if it needs one;
// IoShares has the rest.
//
// Thread: the reactor's, wake() apart. It may be another one between two calls; what the former one
// has asked for it hears of by its own system calls, until it ends.
#pragma once

#include <liburing.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/host.h"
#include "base/io_shares.h"
#include "base/linux/fd.h"

namespace braid::base {

class UringQueue : public IoQueue {
 public:
  static Result<std::unique_ptr<IoQueue>> create(Host& host);
  /// Waits for operations that are still in the kernel: their buffers must not be written later.
  ~UringQueue() override;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  void submit(IoOp& op) override;
  bool poll() override;
  unsigned in_flight() const override { return accepted_; }
  uint64_t completed() const override { return ended_; }
  void wait(uint64_t deadline_ns) override;
  void wake() override;
  // --- base/linux_wait.h
  int wait_descriptor() const { return ring_.ring_fd; }
  bool begin_wait();
  void end_wait() { wake_state_.exchange(WakeState::kAwake); }
  void watch(Event& event, Watch& watch) override;
  void watch_readable(const Handle& handle, Watch& watch) override;
  void watch_writable(const Handle& handle, Watch& watch) override;
  void unwatch(Watch& watch) override;

 private:
  /// One watched descriptor. Outlives its Watch until the kernel has forgotten it.
  struct WatchSlot {
    Watch* watch = nullptr;  // null: unwatched, or free
    int fd = -1;
    bool repeating = false;  // one poll reports every event; else it is asked for again each time
    bool writable = false;   // asked for room to send, else for something to read
    bool armed = false;      // the kernel will still answer
    uint32_t life = 0;       // tells late answers for an earlier user of the slot
  };
  enum class WakeState : uint8_t { kAwake, kSleeping, kNotified };

  UringQueue(Host& host, Fd wake_event);
  Status init();

  io_uring_sqe* next_sqe();
  void prepare_pending();
  void prepare(IoOp& op);
  void finish(IoOp& op, Errc status);
  bool next_completion(io_uring_cqe& out);
  bool dispatch(const io_uring_cqe& cqe);
  void file_done(IoOp& op, int result);
  bool watch_done(uint64_t user_data, const io_uring_cqe& cqe);
  void arm_wake();
  void arm_timer(uint64_t deadline_ns);
  void arm_watch(uint32_t index);
  void add_watch(int fd, bool repeating, bool writable, Watch& watch);

  Host& host_;
  io_uring ring_{};
  bool ring_valid_ = false;

  IoShares shares_;              // what is in the kernel, and what is not yet
  IntrusiveList<IoOp> refused_;  // bad from the start; reported by the next poll()
  unsigned accepted_ = 0;        // submitted and not yet reported
  uint64_t ended_ = 0;           // reported
  std::vector<WatchSlot> watches_;
  std::vector<uint32_t> free_watches_;

  const Fd wake_event_;
  bool wake_armed_ = false;
  __kernel_timespec timer_{};   // read by the kernel when it takes what was submitted
  uint64_t timer_ns_ = kNever;  // when the timer ends that the kernel has; kNever: it has none
  uint64_t timer_tag_;          // of that one, or of the last
  std::thread::id timer_thread_;
  alignas(64) std::atomic<WakeState> wake_state_{WakeState::kAwake};
};

}  // namespace braid::base
