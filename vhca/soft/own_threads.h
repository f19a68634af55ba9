// OwnThreads: which of a device's QPs threads of the program are inside of, in a post or a poll.
//
// Such a call may have resolved a key that another thread now takes out of the table, and copy
// still. It holds the QP's lock meanwhile, so whoever finds that lock free after the key went knows
// that nobody does: who comes later finds the key gone. So does the stall clock, which moves such
// QPs on. A QP of a thread domain has no lock and is not here: its thread promised to be alone, and
// memory that its requests name is deregistered by that thread, or when the QP is quiet.
//
// Threads: any. Never waits for a QP's lock, so that it may be asked from inside of one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "vhca/soft/spin_lock.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft {

class OwnThreads : public std::enable_shared_from_this<OwnThreads> {
 public:
  /// A QP, by the lock under which all that it copies is copied. Gives what remove() wants.
  uint64_t add(SpinLock& lock);
  /// Before the lock goes. Nobody is inside of the QP, nor will be.
  void remove(uint64_t id);

  /// For a key that was just taken out of the table. Null: nobody is inside of any QP.
  std::unique_ptr<PeerFence> fence();

 private:
  class Fence;
  struct Entry {
    uint64_t id;
    SpinLock* lock;
  };

  std::mutex mutex_;
  std::vector<Entry> entries_;  // by rising id
  uint64_t next_id_ = 1;
};

}  // namespace braid::vhca::soft
