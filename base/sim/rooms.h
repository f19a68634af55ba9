// MessageRooms: the memory of large messages, used again. Fresh memory for each was most of the
// page faults of tests under the address sanitizer, which gives large blocks back to the system.
//
// Threads: the world's only one.
#pragma once

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace braid::base::sim {

using Bytes = std::vector<std::byte>;
using SharedBytes = std::shared_ptr<const Bytes>;

class MessageRooms : public std::enable_shared_from_this<MessageRooms> {
 public:
  MessageRooms() = default;
  MessageRooms(const MessageRooms&) = delete;
  MessageRooms& operator=(const MessageRooms&) = delete;
  ~MessageRooms() {
    for (Bytes& spare : spare_) ASAN_UNPOISON_MEMORY_REGION(spare.data(), spare.capacity());
  }

  /// An empty message with room for so many bytes.
  Bytes take(size_t bytes) {
    Bytes message;
    const auto fits = [bytes](const Bytes& spare) { return spare.capacity() >= bytes; };
    const auto found =
        bytes < kLargeBytes ? spare_.end() : std::find_if(spare_.begin(), spare_.end(), fits);
    if (found == spare_.end()) {
      message.reserve(bytes);
      return message;
    }
    std::swap(*found, spare_.back());
    message = std::move(spare_.back());
    spare_.pop_back();
    kept_bytes_ -= message.capacity();
    ASAN_UNPOISON_MEMORY_REGION(message.data(), message.capacity());
    return message;
  }

  /// For all who read it; its room comes back when they are done.
  SharedBytes share(Bytes message) {
    if (message.capacity() < kLargeBytes) return std::make_shared<const Bytes>(std::move(message));
    return SharedBytes(new Bytes(std::move(message)), [rooms = shared_from_this()](Bytes* done) {
      rooms->keep(std::move(*done));
      delete done;
    });
  }

 private:
  static constexpr size_t kLargeBytes = 16 << 10;
  static constexpr size_t kKeptBytesMax = 64 << 20;

  void keep(Bytes done) {
    if (kept_bytes_ + done.capacity() > kKeptBytesMax) return;
    done.clear();
    kept_bytes_ += done.capacity();
    ASAN_POISON_MEMORY_REGION(done.data(),
                              done.capacity());  // whoever still reads it shall be seen
    spare_.push_back(std::move(done));
  }

  std::vector<Bytes> spare_;
  size_t kept_bytes_ = 0;
};

}  // namespace braid::base::sim
