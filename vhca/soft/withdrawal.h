// How a deregistration takes memory back from peers, whichever wire they come by. Here, so that the
// interleaving explorer (tests/explore) runs the same steps. Private to vhca/soft.
#pragma once

#include <memory>

#include "vhca/soft/mr_table.h"
#include "vhca/soft/wire.h"
#include "vhca/verbs.h"

namespace braid::vhca::soft {

inline constexpr uint32_t kRemoteAccessFlags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                               IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

/// The key goes. Not null: peers are still at work on the memory.
template <typename OfWire>
std::unique_ptr<PeerFence> withdraw_memory(MrTable& table, OfWire& wire, const MrView& view) {
  const uint32_t fenced = table.remove(view.key);
  const bool remote = (view.access & kRemoteAccessFlags) != 0;
  return remote ? wire.fence_peers(fenced) : wire.fence_local(fenced);
}

}  // namespace braid::vhca::soft
