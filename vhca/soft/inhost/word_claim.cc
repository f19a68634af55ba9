#include "vhca/soft/inhost/word_claim.h"

#include "base/byte_lock.h"
#include "base/log.h"

namespace braid::vhca::soft::inhost {

using base::Errc;

WordClaim claim_word(base::Host& host, const base::Handle& mr_table, uint64_t address,
                     std::atomic<bool>& lacks_descriptor) {
  return claim_by(host, base::lock_bytes(mr_table, address, sizeof(uint64_t)), lacks_descriptor);
}

WordClaim claim_by(base::Host& host, base::Result<std::unique_ptr<base::Handle>> locked,
                   std::atomic<bool>& lacks_descriptor) {
  WordClaim claim;
  if (locked.ok()) {
    claim.lock = std::move(locked).value();
    if (lacks_descriptor.load(std::memory_order_relaxed)) lacks_descriptor = false;
  } else if (locked.code() == Errc::kNoMemory) {
    claim.claimed = true;
    if (lacks_descriptor.exchange(true)) return claim;
    host.log().error("an atomic waits: its word of memory cannot be claimed: {}",
                     locked.error().message());
  } else if (locked.code() == Errc::kBusy) {
    claim.claimed = true;
  } else {
    host.log().error("cannot claim a word of memory for an atomic: {}", locked.error().message());
  }
  return claim;
}

}  // namespace braid::vhca::soft::inhost
