// Zero bytes that take memory as they are written: the disks of simulated machines, of which most
// tests touch little. What a vector clears first is a page fault for each page of it.
//
// Thread: the owner's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/result.h"

namespace braid::base::sim {

class ZeroedBytes {
 public:
  explicit ZeroedBytes(size_t size = 0) : bytes_(allocate(size)), size_(size) {}
  ZeroedBytes(const ZeroedBytes& other) : ZeroedBytes(other.size_) { copy(other); }
  ZeroedBytes& operator=(const ZeroedBytes& other) {
    if (this == &other) return *this;
    if (size_ != other.size_) *this = ZeroedBytes(other.size_);
    copy(other);
    return *this;
  }
  ZeroedBytes(ZeroedBytes&& other) noexcept
      : bytes_(std::move(other.bytes_)), size_(std::exchange(other.size_, 0)) {}
  ZeroedBytes& operator=(ZeroedBytes&& other) noexcept {
    bytes_ = std::move(other.bytes_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~ZeroedBytes() = default;

  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  operator std::span<const std::byte>() const { return {data(), size_}; }
  /// What it grows by is zero.
  void resize(size_t size) {
    ZeroedBytes resized(size);
    if (size_ > 0) std::memcpy(resized.data(), data(), std::min(size, size_));
    *this = std::move(resized);
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  static std::byte* allocate(size_t size) {
    void* const bytes = std::calloc(size + 1, 1);
    BRAID_ASSERT(bytes != nullptr);
    return static_cast<std::byte*>(bytes);
  }
  void copy(const ZeroedBytes& other) {
    if (size_ > 0) std::memcpy(data(), other.data(), size_);
  }

  std::unique_ptr<std::byte, Free> bytes_;  // and one more, so that no size gives null
  size_t size_ = 0;
};

}  // namespace braid::base::sim
