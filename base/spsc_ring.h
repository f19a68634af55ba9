// A bounded ring from one thread to one other: what reactors use to hand each other a stream of
// small values (lent permits, requests) without a Message object for each.
//
//   slots_[tail % capacity] ... slots_[(head - 1) % capacity]     head - tail <= capacity
//
// The producer owns `head`, the consumer `tail`; each keeps a copy of the other's index and reads
// the real one only when the copy says that the ring is full or empty, so that a ring in steady use
// moves one cache line per few values. Nothing here wakes anybody: post to the reactor or poll the
// ring.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/result.h"

namespace braid::base {

inline constexpr size_t kCacheLineBytes = 64;

/// T is default-constructible and move-assignable. Slots are allocated once, by the constructor.
template <typename T>
class SpscRing {
 public:
  /// `capacity` is a power of two.
  explicit SpscRing(size_t capacity) : mask_(capacity - 1), slots_(new T[capacity]) {
    BRAID_ASSERT(std::has_single_bit(capacity));
  }
  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  size_t capacity() const { return mask_ + 1; }

  /// Producer. False if the ring is full; then `value` is left as it was.
  bool push(T& value) {
    const size_t head = producer_.index.load(std::memory_order_relaxed);
    if (head - producer_.other >= capacity()) {
      producer_.other = consumer_.index.load(std::memory_order_acquire);
      if (head - producer_.other >= capacity()) return false;
    }
    slots_[head & mask_] = std::move(value);
    producer_.index.store(head + 1, std::memory_order_release);
    return true;
  }
  bool push(T&& value) { return push(static_cast<T&>(value)); }

  /// Consumer. False if the ring is empty.
  bool pop(T& out) {
    const size_t tail = consumer_.index.load(std::memory_order_relaxed);
    if (tail == consumer_.other) {
      consumer_.other = producer_.index.load(std::memory_order_acquire);
      if (tail == consumer_.other) return false;
    }
    out = std::move(slots_[tail & mask_]);
    consumer_.index.store(tail + 1, std::memory_order_release);
    return true;
  }

  /// Consumer, before it sleeps: is anything there? Sequentially consistent only together with a
  /// wake-up that is (Reactor::post, Event::signal after a push).
  bool empty() const {
    return consumer_.index.load(std::memory_order_relaxed) ==
           producer_.index.load(std::memory_order_seq_cst);
  }

 private:
  struct alignas(kCacheLineBytes) Side {
    std::atomic<size_t> index{0};
    size_t other = 0;  // what this side last saw of the other's index
  };
  Side producer_;
  Side consumer_;
  alignas(kCacheLineBytes) const size_t mask_;
  const std::unique_ptr<T[]> slots_;
};

}  // namespace braid::base
