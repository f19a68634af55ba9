#include "base/linux/uring.h"

#include <linux/falloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/linux/uring_ops.h"
#include "base/linux_wait.h"

namespace braid::base {
namespace {

constexpr unsigned kSubmissionEntries = 256;
constexpr unsigned kCompletionEntries = 1024;
constexpr int kCompletionsPerPollMax = 256;

// The lowest bits of user_data say whose completion it is; an IoOp's address leaves them zero.
constexpr uint64_t kTagMask = 3;
constexpr uint64_t kTagFile = 0;
constexpr uint64_t kTagWatch = 1;  // | slot << 2 | life << 32
constexpr uint64_t kTagWake = 2;
constexpr uint64_t kTagTimer = kTagWake | 4;  // | life << 3
constexpr uint64_t kTimerLife = 8;
constexpr uint64_t kTagNone = 3;  // nobody cares how it ended
static_assert(alignof(IoOp) > kTagMask);

// File operations that go to the kernel with one call. A disk that gets many at once answers them
// at once, and idles meanwhile.
constexpr unsigned kSubmitTogether = 2;

/// The kernel may be interrupted, short of memory, or want completions taken first: all of these
/// pass. Anything else means that the ring is misused.
void check_enter(int result) {
  BRAID_ASSERT(result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY ||
               result == -ETIME || result == -ENOMEM);
}

}  // namespace

Result<std::unique_ptr<IoQueue>> UringQueue::create(Host& host) {
  Fd wake_event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_event.valid()) return sys_error(errno, "cannot create an eventfd");
  std::unique_ptr<UringQueue> queue(new UringQueue(host, std::move(wake_event)));
  if (Status status = queue->init(); !status.ok()) return status.error();
  return std::unique_ptr<IoQueue>(std::move(queue));
}

UringQueue::UringQueue(Host& host, Fd wake_event)
    : host_(host),
      shares_(kFilePlaces),
      wake_event_(std::move(wake_event)),
      timer_tag_(kTagTimer) {}

Status UringQueue::init() {
  io_uring_params parameters{};
  parameters.flags = IORING_SETUP_CQSIZE | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
  parameters.cq_entries = kCompletionEntries;
  const int result = io_uring_queue_init_params(kSubmissionEntries, &ring_, &parameters);
  if (result < 0) {
    return sys_error(-result,
                     "cannot create an io_uring (Linux 5.19 or newer is needed, and sysctl "
                     "kernel.io_uring_disabled must be 0)");
  }
  ring_valid_ = true;
  // Flushes, and whatever else a file system does not do without waiting, go to worker threads:
  // four for each CPU, unless more are asked for. A hung disk would take them all.
  unsigned workers[] = {kFilePlaces, 0};
  if (const int refused = io_uring_register_iowq_max_workers(&ring_, workers); refused < 0) {
    return sys_error(-refused, "cannot raise the limit of an io_uring's worker threads");
  }
  return {};
}

UringQueue::~UringQueue() {
  if (!ring_valid_) return;
  unsigned in_kernel = shares_.in_kernel();
  while (in_kernel > 0) {
    if (const int result = io_uring_submit_and_wait(&ring_, 1); result < 0 && result != -EINTR) {
      break;
    }
    for (io_uring_cqe done; next_completion(done);) {
      if ((done.user_data & kTagMask) == kTagFile) --in_kernel;
    }
  }
  io_uring_queue_exit(&ring_);
}

// --- file operations

void UringQueue::submit(IoOp& op) {
  op.progressed_bytes = 0;
  op.refusals = 0;
  op.refused = check_io(op);
  ++accepted_;
  if (op.refused != Errc::kOk || op_is_empty(op)) {
    refused_.push_back(op);
  } else {
    shares_.add(op);
  }
}

io_uring_sqe* UringQueue::next_sqe() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {
    check_enter(io_uring_submit(&ring_));
    sqe = io_uring_get_sqe(&ring_);
  }
  return sqe;
}

void UringQueue::prepare_pending() {
  while (IoOp* const op = shares_.next()) prepare(*op);
}

void UringQueue::prepare(IoOp& op) {
  io_uring_sqe* const sqe = next_sqe();
  prepare_io(op, *sqe);
  io_uring_sqe_set_data64(sqe, reinterpret_cast<uint64_t>(&op) | kTagFile);
  if (io_uring_sq_ready(&ring_) >= kSubmitTogether) check_enter(io_uring_submit(&ring_));
}

void UringQueue::finish(IoOp& op, Errc status) {
  --accepted_;
  ++ended_;
  op.done(op, status);
}

void UringQueue::file_done(IoOp& op, int result) {
  shares_.ended(op);
  switch (advance_io(op, result)) {
    case IoProgress::kAgain:
      shares_.add_first(op);
      return;
    case IoProgress::kDone:
      finish(op, Errc::kOk);
      return;
    case IoProgress::kRefused:
      finish(op, Errc::kIo);
      return;
    case IoProgress::kPastEnd:
      finish(op, Errc::kOutOfRange);
      return;
    case IoProgress::kFailed:
      finish(op, errc_from_errno(-result));
      return;
  }
}

// --- completions

/// The oldest completion, copied out.
bool UringQueue::next_completion(io_uring_cqe& out) {
  io_uring_cqe* cqe = nullptr;
  if (io_uring_cq_ready(&ring_) == 0 || io_uring_peek_cqe(&ring_, &cqe) != 0) return false;
  out = *cqe;
  io_uring_cqe_seen(&ring_, cqe);
  return true;
}

bool UringQueue::poll() {
  prepare_pending();
  if (io_uring_sq_ready(&ring_) > 0) {
    // One system call for all that is new. What cannot be taken now stays for the next time.
    check_enter(io_uring_submit(&ring_));
  }
  const unsigned flags = IO_URING_READ_ONCE(*ring_.sq.kflags);
  if ((flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) io_uring_get_events(&ring_);
  bool did = false;
  for (int i = 0; i < kCompletionsPerPollMax; ++i) {
    io_uring_cqe cqe;
    if (!next_completion(cqe)) break;
    did |= dispatch(cqe);
  }
  IntrusiveList<IoOp> refused;
  refused.take_all(refused_);
  while (IoOp* const op = refused.pop_front()) {
    did = true;
    finish(*op, op->refused);
  }
  return did;
}

bool UringQueue::dispatch(const io_uring_cqe& cqe) {
  switch (cqe.user_data & kTagMask) {
    case kTagFile:
      file_done(*reinterpret_cast<IoOp*>(cqe.user_data), cqe.res);
      return true;
    case kTagWatch:
      return watch_done(cqe.user_data, cqe);
    case kTagWake:
      if ((cqe.user_data & kTagTimer) == kTagTimer) {
        if (cqe.user_data == timer_tag_) timer_ns_ = kNever;
      } else {
        wake_armed_ = (cqe.flags & IORING_CQE_F_MORE) != 0;
      }
      return false;
    default:
      return false;
  }
}

// --- sleep and wake-up

void UringQueue::arm_wake() {
  if (wake_armed_) return;
  io_uring_sqe* const sqe = next_sqe();
  // Reports each write to the eventfd; its counter is never read.
  io_uring_prep_poll_multishot(sqe, wake_event_.fd(), POLLIN);
  io_uring_sqe_set_data64(sqe, kTagWake);
  wake_armed_ = true;
}

/// One timer, which stays: who sleeps and is woken for each message would else set a timer of the
/// kernel's and cancel it each time. One that is too early ends a sleep for nothing, once. It is
/// relative, as a container's clock may be another than the kernel's, and its thread's: what a
/// thread has asked for, it hears of in its own system calls.
void UringQueue::arm_timer(uint64_t deadline_ns) {
  const auto thread = std::this_thread::get_id();
  const bool moved = timer_ns_ != kNever && timer_thread_ != thread;
  if (deadline_ns >= timer_ns_ && !moved) return;
  if (moved) {
    io_uring_sqe* const sqe = next_sqe();
    io_uring_prep_timeout_remove(sqe, timer_tag_, 0);
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(sqe, kTagNone);
    timer_ns_ = kNever;
    if (deadline_ns == kNever) return;
  }
  const uint64_t now_ns = host_.now_ns();
  const uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
  timer_.tv_sec = static_cast<int64_t>(left_ns / kSecond);
  timer_.tv_nsec = static_cast<int64_t>(left_ns % kSecond);
  io_uring_sqe* const sqe = next_sqe();
  if (timer_ns_ == kNever) {
    timer_tag_ += kTimerLife;
    io_uring_prep_timeout(sqe, &timer_, 0, 0);
    io_uring_sqe_set_data64(sqe, timer_tag_);
  } else {
    // Told of only if that one has just ended; then its completion ends the sleep, too, and the
    // next one arms it anew.
    io_uring_prep_timeout_update(sqe, &timer_, timer_tag_, 0);
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(sqe, kTagNone);
  }
  timer_ns_ = deadline_ns;
  timer_thread_ = thread;
}

void UringQueue::wait(uint64_t deadline_ns) {
  if (!refused_.empty()) return;
  prepare_pending();
  arm_wake();
  WakeState awake = WakeState::kAwake;
  if (wake_state_.compare_exchange_strong(awake, WakeState::kSleeping)) {
    arm_timer(deadline_ns);  // submitted at once, as the time that is left is counted from then
    // Whatever ends the wait, the reactor looks at everything anyway.
    check_enter(io_uring_submit_and_wait(&ring_, 1));
  }
  wake_state_.exchange(WakeState::kAwake);
}

bool UringQueue::begin_wait() {
  if (!refused_.empty()) return false;
  prepare_pending();
  arm_wake();
  if (io_uring_sq_ready(&ring_) > 0) check_enter(io_uring_submit(&ring_));
  const unsigned flags = IO_URING_READ_ONCE(*ring_.sq.kflags);
  const bool more = (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
  if (more || io_uring_sq_ready(&ring_) > 0 || io_uring_cq_ready(&ring_) > 0) return false;
  WakeState awake = WakeState::kAwake;
  if (wake_state_.compare_exchange_strong(awake, WakeState::kSleeping)) return true;
  wake_state_.exchange(WakeState::kAwake);
  return false;
}

void UringQueue::wake() {
  // Exchanged, not read: this orders all that the caller wrote before against the sleeper's look,
  // and at most one of several callers pays for the system call.
  if (wake_state_.exchange(WakeState::kNotified) != WakeState::kSleeping) return;
  const uint64_t one = 1;
  (void)retry_interrupted([&] { return ::write(wake_event_.fd(), &one, sizeof one); });
}

// --- watches

void UringQueue::watch(Event& event, Watch& watch) {
  add_watch(event.handle().fd(), true, false, watch);
}

void UringQueue::watch_readable(const Handle& handle, Watch& watch) {
  add_watch(handle.fd(), false, false, watch);
}

void UringQueue::watch_writable(const Handle& handle, Watch& watch) {
  add_watch(handle.fd(), false, true, watch);
}

void UringQueue::add_watch(int fd, bool repeating, bool writable, Watch& watch) {
  BRAID_ASSERT(watch.cookie == 0);
  uint32_t index = static_cast<uint32_t>(watches_.size());
  if (free_watches_.empty()) {
    watches_.emplace_back();
  } else {
    index = free_watches_.back();
    free_watches_.pop_back();
  }
  WatchSlot& slot = watches_[index];
  slot.watch = &watch;
  slot.fd = fd;
  slot.repeating = repeating;
  slot.writable = writable;
  ++slot.life;
  watch.cookie = index + 1;
  arm_watch(index);
}

void UringQueue::arm_watch(uint32_t index) {
  WatchSlot& slot = watches_[index];
  io_uring_sqe* const sqe = next_sqe();
  if (slot.repeating) {
    io_uring_prep_poll_multishot(sqe, slot.fd, POLLIN);
  } else {
    io_uring_prep_poll_add(sqe, slot.fd, slot.writable ? POLLOUT : POLLIN | POLLRDHUP);
  }
  const uint64_t life = slot.life;
  io_uring_sqe_set_data64(sqe, kTagWatch | static_cast<uint64_t>(index) << 2 | life << 32);
  slot.armed = true;
}

void UringQueue::unwatch(Watch& watch) {
  if (watch.cookie == 0) return;
  const auto index = static_cast<uint32_t>(watch.cookie - 1);
  watch.cookie = 0;
  WatchSlot& slot = watches_[index];
  slot.watch = nullptr;
  if (!slot.armed) {
    free_watches_.push_back(index);
    return;
  }
  io_uring_sqe* const sqe = next_sqe();
  const uint64_t life = slot.life;
  io_uring_prep_poll_remove(sqe, kTagWatch | static_cast<uint64_t>(index) << 2 | life << 32);
  io_uring_sqe_set_data64(sqe, kTagNone);
  // Now, not at the next poll(): the caller may close the descriptor, and the number may then be
  // another file's by the time the kernel sees an arming that still waits in the ring.
  while (io_uring_sq_ready(&ring_) > 0) {
    check_enter(io_uring_submit(&ring_));
    if (io_uring_sq_ready(&ring_) > 0) host_.yield();  // short of memory
  }
}

bool UringQueue::watch_done(uint64_t user_data, const io_uring_cqe& cqe) {
  const auto index = static_cast<uint32_t>((user_data >> 2) & 0x3fffffff);
  const auto life = static_cast<uint32_t>(user_data >> 32);
  if (watches_[index].life != life) return false;
  if ((cqe.flags & IORING_CQE_F_MORE) == 0) watches_[index].armed = false;
  Watch* const watch = watches_[index].watch;
  if (watch == nullptr) {
    if (!watches_[index].armed) free_watches_.push_back(index);
    return false;
  }
  if (cqe.res == -ECANCELED) {  // the thread that asked for it has ended
    if (!watches_[index].armed) arm_watch(index);
    return false;
  }
  watch->ready(*watch);
  if (cqe.res < 0) return true;  // a bad descriptor: its reader has been told, once
  // The callback may have unwatched it, and even watched something else in the same slot.
  WatchSlot& slot = watches_[index];
  if (slot.life == life && slot.watch == watch && !slot.armed) arm_watch(index);
  return true;
}

// --- base/linux_wait.h; all queues of a LinuxHost are of this kind

int wait_descriptor(const IoQueue& queue) {
  return static_cast<const UringQueue&>(queue).wait_descriptor();
}

bool begin_wait(IoQueue& queue) {
  return static_cast<UringQueue&>(queue).begin_wait();
}

void end_wait(IoQueue& queue) {
  static_cast<UringQueue&>(queue).end_wait();
}

}  // namespace braid::base
