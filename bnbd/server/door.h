// Door: what keeps the home reactor busy is done a little in each turn, of one session after the
// other, while the server has several: long requests of devices that work inside submit(), in
// parts; control requests; and requests that other reactors hand over. Else a client could have
// nearly all of the reactor's time.
//
// For a session that is alone nothing waits. Of one session control requests go first and keep
// their order, as its requests do; with each other they have none.
//
// Thread: the home reactor.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/intrusive_list.h"
#include "base/reactor.h"
#include "bnbd/server/session.h"

namespace braid::bnbd::server {

/// What the door gives back, in turn.
class DoorUser {
 public:
  virtual void do_control(RequestSlot& slot) = 0;
  virtual void do_handed_over(RequestSlot& slot) = 0;

 protected:
  ~DoorUser() = default;
};

class Door final : private base::Poller {
 public:
  /// Of a long request; a multiple of every block. Where memory was never touched these are eight
  /// page faults, by computation 28 us (0.9 ms for a MiB, backend/memory_device.cc).
  static constexpr uint64_t kPartBytes = 32 << 10;
  static_assert(kPartBytes % kBlockBytesMax == 0);

  Door(base::Reactor& home, DoorUser& user) : home_(home), user_(user) {}

  /// How many sessions the server has.
  void set_sessions(size_t count) { several_ = count > 1; }
  // True: the request waits here, and comes back by `user`, or ends. False: it is the caller's.
  bool keeps_control(RequestSlot& slot);
  bool keeps_handed_over(RequestSlot& slot);
  /// For slot.block, checked, if it is not to be done at once. It ends with slot.block.done.
  bool keeps_long(RequestSlot& slot);

 private:
  // What is done in a turn: requests that are handed over, or pages that are written or cleared. A
  // control request counts as a whole turn.
  static constexpr uint64_t kTurn = 8;
  static constexpr uint64_t kPageBytes = 4096;

  void put(RequestSlot& slot, base::IntrusiveList<RequestSlot>& where);
  bool poll() override;
  bool arm() override { return places_.empty(); }
  void begin_turn();
  void spend(uint64_t units) { left_ -= std::min(left_, units); }
  void serve(DoorPlace& place);
  void do_part(RequestSlot& slot);
  static uint64_t pages_of(uint64_t bytes);

  base::Reactor& home_;
  DoorUser& user_;
  bool several_ = false;
  uint64_t turn_ns_ = 0;
  uint64_t left_ = 0;                      // of this turn
  base::IntrusiveList<DoorPlace> places_;  // of sessions with requests that wait, in turn
};

}  // namespace braid::bnbd::server
