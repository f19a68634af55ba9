#include "tests/sim/checkers/stamp.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace braid::sim {
namespace {

using Words = std::array<uint64_t, kSectorBytes / 8>;

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

/// Word 0 is the version; the others depend on all of the stamp and on their place, which makes
/// them the checksum. Each by itself, so that they are made side by side.
Words words_of(const Stamp& stamp) {
  Words words;
  words[0] = stamp.version;
  const uint64_t state = mix(mix(stamp.device * kGolden + stamp.sector) ^ mix(stamp.version));
  for (size_t i = 1; i < words.size(); ++i) words[i] = state + i * kGolden;
  return words;
}

}  // namespace

void write_stamp(std::span<std::byte> sector_bytes, const Stamp& stamp) {
  const Words words = words_of(stamp);
  std::memcpy(sector_bytes.data(), words.data(), kSectorBytes);
}

std::optional<uint64_t> read_stamp(std::span<const std::byte> sector_bytes, uint64_t device,
                                   uint64_t sector) {
  Words words;
  std::memcpy(words.data(), sector_bytes.data(), kSectorBytes);
  if (words[0] == kZeroes) {
    const bool all = std::all_of(words.begin(), words.end(), [](uint64_t w) { return w == 0; });
    return all ? std::optional(kZeroes) : std::nullopt;
  }
  if (words != words_of({device, sector, words[0]})) return std::nullopt;
  return words[0];
}

bool is_mixture(std::span<const std::byte> sector_bytes, uint64_t device, uint64_t sector,
                std::span<const uint64_t> versions) {
  std::vector<Words> stamps;
  for (const uint64_t version : versions)
    stamps.push_back(version == kZeroes ? Words{} : words_of({device, sector, version}));
  for (size_t i = 0; i < kSectorBytes; ++i) {
    const bool known = std::any_of(stamps.begin(), stamps.end(), [&](const Words& words) {
      return std::as_bytes(std::span(words))[i] == sector_bytes[i];
    });
    if (!known) return false;
  }
  return true;
}

}  // namespace braid::sim
