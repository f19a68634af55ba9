// HeldMemory: memory that was deregistered while somebody was in the middle of a copy to or from
// it.
//
// Looks again from the control reactor, seldom: it takes a process that was stopped, or a thread
// that has lost its core, to get here at all. What has been let go of is retired from the wire,
// then given back. What is held for longer than a second is told, once.
//
// Threads: hold() from any thread, the rest on the control reactor. Shared with messages under way
// to that reactor. A look asks the system, and what it tells goes to a log: neither happens under
// the lock, at which other threads spin.
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
  struct Held {
    std::unique_ptr<PeerFence> fence;
    uint64_t length_bytes = 0;  // for people
    MrPlace place;
    std::shared_ptr<void> memory;
    uint64_t since_ns = 0;  // of HeldMemory from here on
    bool told = false;
  };
  HeldMemory(base::Reactor& control, Wire& wire);

  /// Once the fence has passed: Wire::release_memory(place), then the memory goes.
  void hold(Held held);
  /// Gives up what is still held. The wire lives still.
  void shut_down();

 private:
  static void fire(base::Timer& timer);
  void take_new();
  void look();
  void tell_late();

  base::Reactor& control_;
  Wire& wire_;
  base::Timer timer_;
  uint64_t interval_ns_ = 0;  // doubles while nothing comes of it
  std::vector<Held> held_;
  bool shut_down_ = false;
  SpinLock lock_{true};
  std::vector<Held> new_;  // not in held_ yet; lock_
};

}  // namespace braid::vhca::soft
