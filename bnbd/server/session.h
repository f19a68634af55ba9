// One client session at the export server: the devices it has open, and a slot per request.
//
// Threads: the home reactor, except each SlotPool, which belongs to the reactor its requests arrive
// on. Made when TRS says session_opened, destroyed when it says session_closed: no request is left
// then.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/lazy_array.h"
#include "base/message_queue.h"
#include "base/reactor.h"
#include "bnbd/block.h"
#include "bnbd/server/export.h"
#include "bnbd/server/opening.h"
#include "bnbd/server/told_failures.h"
#include "bnbd/wire.h"
#include "trs/server.h"

namespace braid::bnbd::server {

class ServerImpl;
class Session;
struct SlotPool;

/// A device as one session has it open.
struct SessionDevice {
  SessionDevice(Session& owner, Export& what, base::Reactor& reactor)
      : session(owner), exported(what), told(what.failures->flushes), idle(reactor) {}
  Session& session;
  Export& exported;
  uint32_t id = 0;
  wire::AccessMode mode = wire::AccessMode::kReadOnly;
  uint64_t opened_ns = 0;  // when it was
  uint64_t tenure = 0;     // of a writer
  bool lends = false;      // reads may be answered from the export's own memory
  ToldFailures told;       // of the export's flushes
  uint32_t in_flight = 0;  // requests at the backend
  base::Signal idle;       // in_flight became 0
  uint64_t news = 0;       // the number of what its client is to be told of it; 0: nothing
  bool left = false;       // retired, and nobody waits: its last request releases it
  BlockStatistics statistics;
};

/// A request from its arrival to its answer. The Message carries it to the home reactor and back.
struct RequestSlot : base::Message, base::ListNode {
  SlotPool* pool = nullptr;
  trs::ServerRequest* request = nullptr;
  SessionDevice* device = nullptr;
  base::Errc status = base::Errc::kOk;
  trs::DataBuffer source;  // what a read is answered from, if not from its chunk
  BlockRequest block;
  uint64_t flushes_failed = 0;  // of the export, when the request began
  uint64_t left_bytes = 0;      // of a long request at the door
  base::Task<void> control;     // of SESS_INFO, OPEN and CLOSE; done before the slot is free
};

/// A client's place at the door (door.h).
struct DoorPlace : base::ListNode {
  bool empty() const {
    return going_on.empty() && control.empty() && handed_over.empty() && in_parts.empty();
  }
  base::IntrusiveList<base::Resumable> going_on;  // tasks of control requests
  base::IntrusiveList<RequestSlot> control, handed_over, in_parts;
};

/// The slots of one reactor; they take memory with their first use.
struct SlotPool {
  SlotPool(ServerImpl& owner, Session& user, base::Reactor& where, size_t number, uint32_t count)
      : server(owner), session(user), reactor(where), index(number), slots(count) {}
  /// Null: all are in use. One that was never used before one that was just given back, whose
  /// control task may not have come to its end yet.
  RequestSlot* take() {
    RequestSlot* const slot = slots.make();
    if (slot == nullptr) return free.pop_front();
    slot->pool = this;
    return slot;
  }
  ServerImpl& server;
  Session& session;
  base::Reactor& reactor;
  const size_t index;  // of the reactor
  base::LazyArray<RequestSlot> slots;
  base::IntrusiveList<RequestSlot> free;  // of those that are there
};

/// Whether the connections of a session may end whose devices an operator has taken: not if its
/// client would open them again by itself as soon as it has a path again, as Linux's does; without
/// a path lost it does not.
constexpr bool may_end_transport(bool braid_peer, unsigned devices_taken) {
  return braid_peer || devices_taken == 0;
}

/// Devices that a session may have open.
inline constexpr size_t kDevicesMax = 4096;

/// Finds a device by its id in one step, however many there are: its place is in the id's low bits,
/// and no two have one. At least half of the places are free.
class DeviceIds {
 public:
  /// Null if no device has the id.
  SessionDevice* find(uint32_t id) const {
    SessionDevice* const device = places_[place_of(id)];
    return device != nullptr && device->id == id ? device : nullptr;
  }
  /// Whether a device may have this id, with those that there are.
  bool takes(uint32_t id) const { return places_[place_of(id)] == nullptr; }
  /// Before takes() and put() of one more than `devices`.
  void make_room(size_t devices);
  void put(SessionDevice& device) { places_[place_of(device.id)] = &device; }
  void remove(const SessionDevice& device) { places_[place_of(device.id)] = nullptr; }

 private:
  static constexpr size_t kPlacesMin = 16;
  size_t place_of(uint32_t id) const { return id & (places_.size() - 1); }
  std::vector<SessionDevice*> places_ = std::vector<SessionDevice*>(kPlacesMin);
};

class Session {
 public:
  /// `place`: its client's.
  Session(ServerImpl& server, trs::ServerSession& transport,
          const std::vector<base::Reactor*>& reactors, std::shared_ptr<DoorPlace> place);
  Session(const Session&) = delete;

  trs::ServerSession& transport() { return transport_; }
  const std::string& name() const { return name_; }
  const std::string& peer() const { return peer_; }
  bool braid_peer() const { return braid_peer_; }
  const std::string& key_name() const { return key_name_; }
  /// Whose it is: what it has proved, or else what it calls itself.
  const std::string& owner() const { return key_name_.empty() ? name_ : key_name_; }
  uint32_t transport_max_io() const { return transport_.max_io_bytes(); }
  const std::vector<std::unique_ptr<SessionDevice>>& devices() const { return devices_; }

  /// The pool of the reactor; null if it is none of the server's.
  SlotPool* pool(const base::Reactor* reactor) {
    for (auto& pool : pools_) {
      if (&pool->reactor == reactor) return pool.get();
    }
    return nullptr;
  }
  /// Null if no open device has the id.
  SessionDevice* find(uint32_t id) const { return ids_.find(id); }
  SessionDevice* find(const Export& exported);
  /// Under a fresh random id.
  SessionDevice& add(Export& exported, wire::AccessMode mode, base::Reactor& home);
  /// Out of the table: later requests do not find it. It still holds its export.
  std::unique_ptr<SessionDevice> remove(SessionDevice& device);
  /// As remove(), for a device that still has requests: kept until take_retired().
  void retire(SessionDevice& device) { retired_.push_back(remove(device)); }
  std::unique_ptr<SessionDevice> take_retired(SessionDevice& device);
  const std::vector<std::unique_ptr<SessionDevice>>& retired() const { return retired_; }

  Openings& openings() { return openings_; }
  /// Shared by all sessions of its client.
  DoorPlace& door() { return *door_; }
  /// Whose lines of the log are counted together.
  const std::string& client() const { return client_; }

  /// A flush ends that tells of failures: from now on it matters which chunks are used again.
  void expect_answer_seen() { expects_seen_ = true; }
  /// The client has seen the answer to what was in the request's chunk.
  void answer_seen(const trs::ServerRequest& chunk) {
    if (expects_seen_) tell_devices_seen(chunk);
  }

  /// Its client is to hear that the device has another size, or that it is closed (and retired).
  void tell_resized(SessionDevice& device);
  void tell_closed(uint32_t id);
  /// What it has not seen yet, oldest first; what it has seen is forgotten.
  wire::NewsList news_since(uint64_t seen);

  const uint64_t opened_ns;
  uint64_t number = 0;  // of those that the server has had
  uint8_t version = 0;  // of the client's SESS_INFO; 0: none came yet

 private:
  trs::ServerSession& transport_;
  const std::string name_;  // copies, as the transport's may be gone when they are shown
  const std::string peer_;
  const bool braid_peer_;
  const std::string key_name_;
  const std::string client_;
  const std::shared_ptr<DoorPlace> door_;
  struct ClosedDevice {
    uint64_t news = 0;
    uint32_t id = 0;
  };
  void tell_devices_seen(const trs::ServerRequest& chunk);
  bool expects_seen_ = false;
  Openings openings_;
  uint64_t news_ = 0;                 // so many there have been
  std::vector<ClosedDevice> closed_;  // by the operator, of which the client may not know yet
  std::vector<std::unique_ptr<SessionDevice>> devices_;  // by id, ascending
  DeviceIds ids_;                                        // of these
  std::vector<std::unique_ptr<SessionDevice>> retired_;  // closed, with requests at their disk
  std::vector<std::unique_ptr<SlotPool>> pools_;         // last: their tasks go first
};

}  // namespace braid::bnbd::server
