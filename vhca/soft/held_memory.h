// HeldMemory: memory that was deregistered while peers were in the middle of copies to or from it.
//
// Looks again from the control reactor, seldom: it takes a process that was stopped, or is very
// late, to get here at all. What has been let go of by its peers is retired from the wire, then
// given back.
//
// Threads: hold() from any thread, the rest on the control reactor. Shared with messages under way
// to that reactor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/reactor.h"
#include "vhca/soft/spin_lock.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft {

class HeldMemory : public std::enable_shared_from_this<HeldMemory> {
 public:
  HeldMemory(base::Reactor& control, Wire& wire);

  /// Once the fence has passed: Wire::release_memory(place), then `memory` goes.
  void hold(std::unique_ptr<PeerFence> fence, const MrPlace& place, std::shared_ptr<void> memory);
  /// Gives up what is still held. The wire lives still.
  void shut_down();

 private:
  struct Held {
    std::unique_ptr<PeerFence> fence;
    MrPlace place;
    std::shared_ptr<void> memory;
  };
  static void fire(base::Timer& timer);
  void look();

  base::Reactor& control_;
  Wire& wire_;
  base::Timer timer_;
  uint64_t interval_ns_ = 0;  // doubles while nothing comes of it
  SpinLock lock_{true};       // guards all below
  std::vector<Held> held_;
  bool shut_down_ = false;
};

}  // namespace braid::vhca::soft
