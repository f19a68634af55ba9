// Timers of a reactor, and the heap that orders them.
//
// Thread: the owning reactor's. After the heap has grown to the largest number of pending timers,
// nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid::base {

class Reactor;

/// A callback at a time. The user owns it; destroying or cancelling it is always safe, also from
/// its own callback.
class Timer {
 public:
  using Callback = void (*)(Timer& timer);
  Timer(Callback callback, void* user) : context(user), callback_(callback) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();
  /// Scheduled and not yet fired. False inside its own callback.
  bool pending() const { return reactor_ != nullptr; }
  uint64_t deadline_ns() const { return deadline_ns_; }
  void* const context;

 private:
  friend class Reactor;
  friend class TimerHeap;
  bool before(const Timer& other) const {
    if (deadline_ns_ != other.deadline_ns_) return deadline_ns_ < other.deadline_ns_;
    return order_ < other.order_;
  }
  Callback callback_;
  Reactor* reactor_ = nullptr;
  uint64_t deadline_ns_ = 0;
  uint64_t order_ = 0;  // ties fire in the order of scheduling
  size_t heap_index_ = 0;
};

/// A binary heap of timers that know their place in it, so that removal needs no search.
class TimerHeap {
 public:
  bool empty() const { return heap_.empty(); }
  Timer& top() const { return *heap_.front(); }
  void insert(Timer& timer);
  void remove(Timer& timer);

 private:
  void place(Timer& timer, size_t index);
  void sift_up(Timer& timer, size_t index);
  void sift_down(Timer& timer, size_t index);
  // heap_[i] fires no later than heap_[2 i + 1] and heap_[2 i + 2]; heap_[i]->heap_index_ == i.
  std::vector<Timer*> heap_;
};

}  // namespace braid::base
