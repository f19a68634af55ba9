// How fuzz targets read their input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace braid::fuzz {

/// The input, number by number; zeroes behind its end.
class Numbers {
 public:
  explicit Numbers(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  template <typename T>
  T next() {
    T value{};
    const size_t count = std::min(sizeof(T), bytes_.size());
    if (count > 0) std::memcpy(&value, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
    return value;
  }
  uint32_t below(uint32_t bound) { return next<uint8_t>() % bound; }
  bool flag() { return (next<uint8_t>() & 1) != 0; }
  /// So many bytes of the input.
  std::vector<std::byte> take(size_t count) {
    std::vector<std::byte> out(count);
    const size_t there = std::min(count, bytes_.size());
    if (there > 0) std::memcpy(out.data(), bytes_.data(), there);
    bytes_ = bytes_.subspan(there);
    return out;
  }
  /// True now and then, never behind the input's end: whatever goes the ordinary way without it.
  bool odd(uint32_t one_in) { return below(one_in) == one_in - 1; }
  /// A message that follows the rules, but for some bytes of it, or its length, now and then.
  std::vector<std::byte> bent(std::span<const std::byte> message) {
    std::vector<std::byte> out(message.begin(), message.end());
    const uint32_t how = below(16);
    for (uint32_t changes = how < 13 ? 0 : how - 12; changes > 0 && !out.empty(); --changes) {
      out[next<uint16_t>() % out.size()] = static_cast<std::byte>(next<uint8_t>());
    }
    if (how == 12) out.resize(next<uint16_t>() % (out.size() + 9));
    return out;
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace braid::fuzz
