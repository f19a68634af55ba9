// The claim of a word outside of segments: who changes it by system calls, or beside peers that do,
// has locked the bytes with the number of its address in the memory of its device's MR table, which
// those alone have who are connected. The kernel takes the lock back from who dies.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/host.h"

namespace braid::vhca::soft::inhost {

/// The word is the claimer's for as long as there is one. Two system calls, and one to end it.
struct WordClaim {
  /// null: somebody else is at the word, or the process has no descriptor or memory left
  /// (`claimed`: it may be had later), or nothing can be locked at all.
  std::unique_ptr<base::Handle> lock;
  bool claimed = false;
};

/// A word of the memory whose registrations are in `mr_table`, at the owner's address. A failure is
/// logged; a lack, which `lacks_descriptor` remembers for the caller, once until it is over.
WordClaim claim_word(base::Host& host, const base::Handle& mr_table, uint64_t address,
                     std::atomic<bool>& lacks_descriptor);

/// What became of locking it.
WordClaim claim_by(base::Host& host, base::Result<std::unique_ptr<base::Handle>> locked,
                   std::atomic<bool>& lacks_descriptor);

}  // namespace braid::vhca::soft::inhost
