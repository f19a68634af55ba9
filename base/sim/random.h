// SimRandom: the only source of chance in a simulated world (xoshiro256**, seeded by splitmix64).
//
// Own code rather than <random>: the distributions there differ between standard libraries, and a
// seed must replay bit for bit everywhere. A copy is an independent generator in the same state;
// fork() gives a new stream, so that one part's draws do not shift another's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace braid::base::sim {

class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) {
    for (uint64_t& word : state_) word = split_mix(seed);
  }

  uint64_t next() {
    const uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate_left(state_[3], 45);
    return result;
  }

  /// 0 .. bound - 1; 0 for bound 0.
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  /// low .. high, both included.
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool one_in(uint64_t n) { return below(n) == 0; }
  bool per_million(uint64_t parts) { return below(1'000'000) < parts; }

  void fill(std::span<std::byte> out) {
    uint64_t word = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      if (i % 8 == 0) word = next();
      out[i] = static_cast<std::byte>(word >> (i % 8 * 8));
    }
  }

  SimRandom fork() { return SimRandom(next()); }

 private:
  static constexpr uint64_t rotate_left(uint64_t v, int n) { return (v << n) | (v >> (64 - n)); }
  static uint64_t split_mix(uint64_t& seed) {
    uint64_t z = (seed += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::array<uint64_t, 4> state_{};
};

}  // namespace braid::base::sim
