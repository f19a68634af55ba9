#include "vhca/soft/inhost/word_claim.h"

#include <array>
#include <bit>

#include "base/log.h"

namespace braid::vhca::soft::inhost {

using base::Errc;

WordClaim claim_word(base::Host& host, const DeviceId& device, uint64_t address,
                     std::atomic<bool>& lacks_descriptor) {
  // By the same name for all.
  const auto halves = std::bit_cast<std::array<uint64_t, 2>>(device);
  auto bound = host.listen_local(
      fmt::format("braid.word.{:016x}{:016x}.{:x}", halves[0], halves[1], address));
  WordClaim claim;
  if (bound.ok()) {
    claim.name = std::move(bound).value();
    if (lacks_descriptor.load(std::memory_order_relaxed)) lacks_descriptor = false;
  } else if (bound.code() == Errc::kNoMemory) {
    claim.claimed = true;
    if (lacks_descriptor.exchange(true)) return claim;
    host.log().error("an atomic waits: its word of memory cannot be claimed: {}",
                     bound.error().message());
  } else if (bound.code() == Errc::kBusy || bound.code() == Errc::kExists) {
    claim.claimed = true;
  } else {
    host.log().error("cannot claim a word of memory for an atomic: {}", bound.error().message());
  }
  return claim;
}

}  // namespace braid::vhca::soft::inhost
