// The RNR timer codes and retry counts of InfiniBand (ibv_modify_qp(3): min_rnr_timer, rnr_retry).
#pragma once

#include <cstdint>
#include <iterator>

namespace braid::vhca::soft {

inline constexpr uint8_t kRnrRetryForEver = 7;

/// How long a requester waits after "receiver not ready", from the responder's code 0..31.
constexpr uint64_t rnr_timer_ns(uint8_t code) {
  // In units of 10 us.
  constexpr uint32_t kUnits[] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                 16,    24,   32,   48,    64,    96,    128,   192,
                                 256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                 4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
  static_assert(std::size(kUnits) == 32);
  return kUnits[code & 31] * 10'000ull;
}
static_assert(rnr_timer_ns(12) == 640'000 && rnr_timer_ns(0) == 655'360'000);

}  // namespace braid::vhca::soft
