// The claim of a word outside of segments: who changes it by system calls, or beside peers that do,
// has bound the name of that word on this host (an abstract socket). The kernel takes it back from
// who dies.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/host.h"
#include "vhca/soft/inhost/cm_messages.h"

namespace braid::vhca::soft::inhost {

/// The word is the claimer's for as long as there is one. Two system calls.
struct WordClaim {
  /// null: somebody else is at the word, or the process has no descriptor or memory left
  /// (`claimed`: it may be had later), or names cannot be bound at all.
  std::unique_ptr<base::LocalListener> name;
  bool claimed = false;
};

/// A word of `device`'s memory, at the owner's address. A failure is logged; a lack, which
/// `lacks_descriptor` remembers for the caller, once until it is over.
WordClaim claim_word(base::Host& host, const DeviceId& device, uint64_t address,
                     std::atomic<bool>& lacks_descriptor);

}  // namespace braid::vhca::soft::inhost
