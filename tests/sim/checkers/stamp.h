// Stamped sectors: each 512 bytes say which device, which sector and which write they belong to,
// and are checked in full. Checker: a read never returns another block's data, nor a torn sector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace braid::sim {

inline constexpr uint64_t kSectorBytes = 512;
/// The value of a sector that reads as zeroes; writes have versions from 1.
inline constexpr uint64_t kZeroes = 0;

struct Stamp {
  uint64_t device = 0;
  uint64_t sector = 0;
  uint64_t version = 0;
};

/// Fills one sector.
void write_stamp(std::span<std::byte> sector_bytes, const Stamp& stamp);

/// The version that is stored, kZeroes if all bytes are zero, nothing if it is not exactly what
/// write_stamp() makes for this device and sector.
std::optional<uint64_t> read_stamp(std::span<const std::byte> sector_bytes, uint64_t device,
                                   uint64_t sector);

/// Whether each byte is that of one of these versions at its place.
bool is_mixture(std::span<const std::byte> sector_bytes, uint64_t device, uint64_t sector,
                std::span<const uint64_t> versions);

}  // namespace braid::sim
