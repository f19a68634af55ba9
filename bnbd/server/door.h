// Door: what keeps the home reactor busy is done a little in each turn, of one client after the
// other, while the server has several sessions: long requests of devices that work inside submit(),
// in parts; control requests, also where they go on with what a worker thread has brought back; and
// requests that other reactors hand over. Else a client could have nearly all of the reactor's
// time.
//
// For a session that is alone nothing waits. Of one client control requests go first and keep their
// order, as its requests do; with each other they have none. A client's sessions share its place.
//
// Thread: the home reactor.
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

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
  /// That of the client of this name, for a session of it to keep.
  std::shared_ptr<DoorPlace> place_of(const std::string& client);
  // True: the request waits here, and comes back by `user`, or ends. False: it is the caller's.
  bool keeps_control(RequestSlot& slot);
  bool keeps_handed_over(RequestSlot& slot);
  /// For slot.block, checked, if it is not to be done at once. It ends with slot.block.done.
  bool keeps_long(RequestSlot& slot);

  class Turn;
  /// What co_awaits it goes on in a turn of this place, as a control request would. Where others'
  /// threads bring back what many wait for, these would all go on at once.
  Turn turn(DoorPlace& place);
  /// For what belongs to no session.
  DoorPlace& own_place() { return own_place_; }

 private:
  // What is done in a turn: requests that are handed over, or pages that are written or cleared. A
  // control request counts as a whole turn.
  static constexpr uint64_t kTurn = 8;
  static constexpr uint64_t kPageBytes = 4096;

  void put(RequestSlot& slot, base::IntrusiveList<RequestSlot>& where);
  void stand_in_line(DoorPlace& place);
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
  uint64_t left_ = 0;  // of this turn
  DoorPlace own_place_;
  std::map<std::string, std::weak_ptr<DoorPlace>> clients_;
  base::IntrusiveList<DoorPlace> places_;  // of clients with requests that wait, in turn
};

class Door::Turn : private base::Resumable {
 public:
  Turn(Door& door, DoorPlace& place) : door_(door), place_(place) {}
  bool await_ready() const { return !door_.several_ && place_.going_on.empty(); }
  void await_suspend(std::coroutine_handle<> waiter) {
    handle = waiter;
    place_.going_on.push_back(*this);
    door_.stand_in_line(place_);
  }
  void await_resume() const noexcept {}

 private:
  Door& door_;
  DoorPlace& place_;
};

inline Door::Turn Door::turn(DoorPlace& place) {
  return Turn(*this, place);
}

}  // namespace braid::bnbd::server
