// Zero bytes that take memory as they are written: the disks of simulated machines, of which most
// tests touch little. What a vector clears first is a page fault for each page of it.
//
// Thread: the owner's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/lazy_array.h"

namespace braid::base::sim {

class ZeroedBytes {
 public:
  explicit ZeroedBytes(size_t size = 0)
      : bytes_(std::make_unique<ZeroedArray<std::byte>>(size)), size_(size) {}
  ZeroedBytes(const ZeroedBytes& other) : ZeroedBytes(other.size_) { copy(other, size_); }
  ZeroedBytes& operator=(const ZeroedBytes& other) {
    if (this == &other) return *this;
    if (size_ != other.size_) resize(other.size_);
    copy(other, size_);
    return *this;
  }
  ~ZeroedBytes() = default;

  std::byte* data() { return &(*bytes_)[0]; }
  const std::byte* data() const { return &(*bytes_)[0]; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // NOLINTNEXTLINE(google-explicit-constructor): it is bytes, as a vector of them would be.
  operator std::span<const std::byte>() const { return {data(), size_}; }
  /// What it grows by is zero.
  void resize(size_t size) {
    ZeroedBytes resized(size);
    resized.copy(*this, std::min(size, size_));
    std::swap(bytes_, resized.bytes_);
    size_ = size;
  }

 private:
  void copy(const ZeroedBytes& other, size_t size) { std::memcpy(data(), other.data(), size); }

  std::unique_ptr<ZeroedArray<std::byte>> bytes_;
  size_t size_ = 0;
};

}  // namespace braid::base::sim
