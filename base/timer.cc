#include "base/timer.h"

#include "base/reactor.h"

namespace braid::base {

Timer::~Timer() {
  if (reactor_ != nullptr) reactor_->cancel(*this);
}

void TimerHeap::insert(Timer& timer) {
  heap_.push_back(&timer);
  sift_up(timer, heap_.size() - 1);
}

void TimerHeap::remove(Timer& timer) {
  const size_t hole = timer.heap_index_;
  BRAID_ASSERT(hole < heap_.size() && heap_[hole] == &timer);
  Timer* const last = heap_.back();
  heap_.pop_back();
  if (last == &timer) return;
  if (last->before(timer)) {
    sift_up(*last, hole);
  } else {
    sift_down(*last, hole);
  }
}

void TimerHeap::place(Timer& timer, size_t index) {
  heap_[index] = &timer;
  timer.heap_index_ = index;
}

void TimerHeap::sift_up(Timer& timer, size_t index) {
  while (index > 0) {
    const size_t parent = (index - 1) / 2;
    if (!timer.before(*heap_[parent])) break;
    place(*heap_[parent], index);
    index = parent;
  }
  place(timer, index);
}

void TimerHeap::sift_down(Timer& timer, size_t index) {
  for (;;) {
    size_t child = 2 * index + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1]->before(*heap_[child])) ++child;
    if (!heap_[child]->before(timer)) break;
    place(*heap_[child], index);
    index = child;
  }
  place(timer, index);
}

}  // namespace braid::base
