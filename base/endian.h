// Little- and big-endian integers of alignment 1, for structures that cross a wire or lie on a
// disk.
//
// A structure made of these has no padding and may lie at any address. Follow each such structure
// with static_asserts on its size, offsets and std::has_unique_object_representations_v.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>

namespace braid::base {

static_assert(std::endian::native == std::endian::little,
              "Braid is built for little-endian machines");

template <std::unsigned_integral T>
constexpr T byte_swap(T v) {
  if constexpr (sizeof(T) == 1) return v;
  if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(v));
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(v);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(v);
}

/// An unsigned integer stored in the given byte order, at alignment 1. Converts to and from the
/// host's integer.
template <std::unsigned_integral T, std::endian kOrder>
class Endian {
 public:
  constexpr Endian() = default;
  constexpr Endian(T value) { store(value); }  // NOLINT(google-explicit-constructor)
  constexpr Endian& operator=(T value) {
    store(value);
    return *this;
  }
  constexpr operator T() const {  // NOLINT(google-explicit-constructor)
    const T raw = std::bit_cast<T>(bytes_);
    return kOrder == std::endian::little ? raw : byte_swap(raw);
  }

 private:
  struct Bytes {
    uint8_t at[sizeof(T)];
  };
  constexpr void store(T value) {
    bytes_ = std::bit_cast<Bytes>(kOrder == std::endian::little ? value : byte_swap(value));
  }
  Bytes bytes_{};
};

using le16 = Endian<uint16_t, std::endian::little>;
using le32 = Endian<uint32_t, std::endian::little>;
using le64 = Endian<uint64_t, std::endian::little>;
using be16 = Endian<uint16_t, std::endian::big>;
using be32 = Endian<uint32_t, std::endian::big>;
using be64 = Endian<uint64_t, std::endian::big>;

static_assert(sizeof(le64) == 8 && alignof(le64) == 1);

}  // namespace braid::base
