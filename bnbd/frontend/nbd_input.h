// What a connection has received and not parsed yet: many requests by one system call.
//
//   | used ... | pending ...... | free ........ |
//              begin_           end_            kBytes
//
// Threads: the reactor's. The memory is made once, by the constructor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/result.h"

namespace braid::bnbd {

class NbdInput {
 public:
  /// 31 writes of 4 KiB with their headers.
  static constexpr size_t kBytes = 128 << 10;

  std::span<const std::byte> pending() const { return {bytes_.get() + begin_, end_ - begin_}; }
  bool empty() const { return begin_ == end_; }
  void consume(size_t length) {
    BRAID_ASSERT(length <= end_ - begin_);
    begin_ += length;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  /// Where more may be received. What is pending moves to the front if the room behind it is
  /// short; it is less than a request then, as a rule.
  std::span<std::byte> room() {
    if (begin_ > kBytes / 2) {
      std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    return {bytes_.get() + end_, kBytes - end_};
  }
  void received(size_t length) {
    BRAID_ASSERT(length <= kBytes - end_);
    end_ += length;
  }
  /// Bytes that came before: what a handshake has read beyond its end.
  void begin_with(std::span<const std::byte> bytes) {
    BRAID_ASSERT(empty() && bytes.size() <= kBytes);
    if (!bytes.empty()) std::memcpy(bytes_.get(), bytes.data(), bytes.size());
    end_ = bytes.size();
  }

 private:
  const std::unique_ptr<std::byte[]> bytes_ = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace braid::bnbd
