#include "vhca/soft/inhost/word_claim.h"

#include <array>
#include <bit>

#include "base/log.h"

namespace braid::vhca::soft::inhost {

using base::Errc;

WordClaim claim_word(base::Host& host, const DeviceId& device, uint64_t address) {
  // By the same name for all.
  const auto halves = std::bit_cast<std::array<uint64_t, 2>>(device);
  auto bound = host.listen_local(
      fmt::format("braid.word.{:016x}{:016x}.{:x}", halves[0], halves[1], address));
  WordClaim claim;
  if (bound.ok()) {
    claim.name = std::move(bound).value();
  } else if (bound.code() == Errc::kBusy || bound.code() == Errc::kExists) {
    claim.claimed = true;
  } else {
    host.log().error("cannot claim a word of memory for an atomic: {}", bound.error().message());
  }
  return claim;
}

}  // namespace braid::vhca::soft::inhost
