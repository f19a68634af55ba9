// A lock for sections of tens of nanoseconds, which an object of a thread domain (Td) switches off.
#pragma once

#include <atomic>

namespace braid::vhca::soft {

class SpinLock {
 public:
  /// Not `enabled`: one thread promised to be alone, lock() and unlock() cost a branch.
  explicit SpinLock(bool enabled) : enabled_(enabled) {}
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  void lock() {
    if (enabled_ && held_.exchange(true, std::memory_order_acquire)) acquire();
  }
  bool try_lock() { return !enabled_ || !held_.exchange(true, std::memory_order_acquire); }
  void unlock() {
    if (enabled_) held_.store(false, std::memory_order_release);
  }
  bool enabled() const { return enabled_; }

 private:
  void acquire();

  const bool enabled_;
  std::atomic<bool> held_{false};
};

}  // namespace braid::vhca::soft
