// Room for a fixed number of objects that takes memory as it is used: what thousands of devices and
// sessions hold, of which few are busy.
//
// Nothing is allocated after the constructor. Thread: the owner's, where a class says no other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "base/result.h"

namespace braid::base {

/// Objects that are made one after the other, and stay.
template <typename T>
class LazyArray {
 public:
  explicit LazyArray(size_t capacity)
      : capacity_(capacity), memory_(std::malloc((capacity + 1) * sizeof(T))) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    BRAID_ASSERT(memory_ != nullptr);
  }
  ~LazyArray() {
    while (size_ > 0) begin()[--size_].~T();
  }
  LazyArray(const LazyArray&) = delete;
  LazyArray& operator=(const LazyArray&) = delete;

  /// One more, or null: all are there.
  T* make() { return size_ < capacity_ ? new (begin() + size_++) T() : nullptr; }
  T* begin() { return static_cast<T*>(memory_.get()); }
  T* end() { return begin() + size_; }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  const size_t capacity_;
  size_t size_ = 0;
  const std::unique_ptr<void, Free> memory_;
};

/// Objects that are made in any order, and stay. Each has one thread that makes it, the others see
/// it from then on.
template <typename T>
class SparseArray {
 public:
  explicit SparseArray(size_t size)
      : size_(size),
        made_(std::make_unique<std::atomic<bool>[]>(size)),
        memory_(std::make_unique_for_overwrite<Room[]>(size)) {}
  ~SparseArray() {
    for (size_t i = 0; i < size_; ++i) {
      if (has(i)) (*this)[i].~T();
    }
  }
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray&) = delete;

  bool has(size_t index) const { return made_[index].load(std::memory_order_acquire); }
  /// Only once.
  T& make(size_t index) {
    BRAID_ASSERT(!has(index));
    T* const made = new (&memory_[index]) T();
    made_[index].store(true, std::memory_order_release);
    return *made;
  }
  /// Only if it has been made.
  T& operator[](size_t index) const { return *std::launder(reinterpret_cast<T*>(&memory_[index])); }
  size_t size() const { return size_; }

 private:
  struct alignas(T) Room {
    std::byte bytes[sizeof(T)];
  };
  const size_t size_;
  const std::unique_ptr<std::atomic<bool>[]> made_;
  const std::unique_ptr<Room[]> memory_;
};

/// Objects of zero bytes, all there from the start.
template <typename T>
class ZeroedArray {
 public:
  explicit ZeroedArray(size_t count) : memory_(std::calloc(count + 1, sizeof(T))) {
    static_assert(std::is_trivially_destructible_v<T>);
    BRAID_ASSERT(memory_ != nullptr);
    void* at = memory_.get();
    size_t room = (count + 1) * sizeof(T);
    first_ = static_cast<T*>(std::align(alignof(T), count * sizeof(T), at, room));
  }
  T& operator[](size_t index) const { return first_[index]; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  const std::unique_ptr<void, Free> memory_;
  T* first_;
};

}  // namespace braid::base
