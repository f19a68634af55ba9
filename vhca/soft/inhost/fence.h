// Copies that peers make to and from this process's memory, as their owner sees them: which may be
// under way, and when they have ended.
//
// A copy ends when its counter moves, or when the pidfd says that its process is dead. A process
// that was stopped (SIGSTOP) inside of one may hold it for ever, so nobody spins here: who must
// know asks again. That the peer's socket hung up proves nothing: its thread may still copy.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/host.h"
#include "vhca/soft/inhost/access.h"
#include "vhca/soft/inhost/layout.h"
#include "vhca/soft/inhost/peer_device.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::inhost {

/// The copies of one peer QP. Lives on behind its link while one is under way.
class PeerCopies {
 public:
  /// Owns the inbound segment, in which the peer tells of its copies.
  PeerCopies(std::unique_ptr<base::Segment> inbound, std::shared_ptr<PeerDevice> peer)
      : inbound_(std::move(inbound)), peer_(std::move(peer)) {}

  std::byte* inbound() const { return inbound_->data(); }
  const std::shared_ptr<PeerDevice>& peer() const { return peer_; }
  /// See copy_under_way().
  uint64_t under_way(uint32_t key) const {
    return copy_under_way(reinterpret_cast<SegmentHead*>(inbound())->activity, key);
  }
  /// Whether the counter says that a copy which was seen under way has ended. That of a process
  /// that died in the middle of one stands for ever.
  bool moved_on(uint64_t copy) const { return under_way(kAnyKey) != copy; }
  /// Whether such a copy has ended. A system call if its counter still stands.
  bool ended(uint64_t copy) const { return moved_on(copy) || !peer_->alive(); }

 private:
  const std::unique_ptr<base::Segment> inbound_;
  const std::shared_ptr<PeerDevice> peer_;
};

/// A fence looks at the counters each time; whether those who copy still live it asks once in so
/// many looks, as that is a system call for each. Once in the looks of a deregistration.
inline constexpr unsigned kLooksOfAQuestion = 64;

/// Passes when this copy, which is under way, has ended.
std::unique_ptr<PeerFence> fence_copy(std::shared_ptr<const PeerCopies> copies, uint64_t copy);

/// The copies of all peers of a device, so that deregistration can fence them.
class CopyTable {
 public:
  void add(std::shared_ptr<const PeerCopies> copies);
  /// The link is gone and its gate closed, seen by the peer (heavy_fence). A copy that is under way
  /// still counts until it ends.
  void remove(const PeerCopies& copies);
  /// The copies under way that resolved `key`. Call heavy_fence() between the key's removal and
  /// this. Null: none.
  std::unique_ptr<PeerFence> fence(uint32_t key);
  /// Runs `action` if no peer may be in the middle of a copy, nor begin one before it has ended;
  /// else false.
  template <typename Action>
  bool while_nobody_copies(Action&& action) {
    // A link joins before its peer can begin anything.
    const std::lock_guard lock(mutex_);
    forget_ended_locked();
    if (!entries_.empty()) return false;
    action();
    return true;
  }

 private:
  struct Entry {
    std::shared_ptr<const PeerCopies> copies;
    uint64_t last = 0;  // its link is gone, and this copy was under way then
  };
  void forget_ended_locked();

  std::mutex mutex_;
  std::vector<Entry> entries_;
};

/// As Wire::fence_peers(): the key is gone already.
template <typename HeavyFence>
std::unique_ptr<PeerFence> fence_copies(CopyTable& copies, uint32_t key, HeavyFence&& heavy_fence) {
  return withdraw([] {}, heavy_fence, [&] { return copies.fence(key); });
}

}  // namespace braid::vhca::soft::inhost
