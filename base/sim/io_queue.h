// SimIoQueue and ReactorSlot: a simulated reactor's files and readiness, and the world's record of
// when it runs.
//
// The slot outlives the queue (events of the world point to it); the queue belongs to the Reactor.
//
//   sleeping ── wake(), deadline ──> scheduled ── its event ──> turning ── did something ─┐
//      ^                                 ^                         │                      │
//      └── idle, and prepare_sleep() ────┼─────────────────────────┘                      │
//                                        └────────────────────────────────────────────────┘
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/host.h"
#include "base/io_shares.h"
#include "base/sim/disk.h"

namespace braid::base {
class Reactor;
}

namespace braid::base::sim {

class ReactorSlot;
class SimHost;
class SimIoQueue;
class SimWorld;

/// What a Handle of a simulated process refers to.
class SimObject {
 public:
  virtual ~SimObject() = default;
};

class SimHandle final : public Handle {
 public:
  explicit SimHandle(std::shared_ptr<SimObject> object) : object_(std::move(object)) {}
  int fd() const override { return -1; }
  Result<std::unique_ptr<Handle>> duplicate() const override {
    return std::unique_ptr<Handle>(std::make_unique<SimHandle>(object_));
  }
  const std::shared_ptr<SimObject>& object() const { return object_; }

 private:
  std::shared_ptr<SimObject> object_;
};

/// The flag of an Event, shared by all who hold it.
class EventState final : public SimObject {
 public:
  explicit EventState(bool is_level = false) : level(is_level) {}
  const bool level;  // told of again after each callback for as long as it is set
  bool set = false;
  struct Watcher {
    ReactorSlot* slot;
    Watch* watch;
  };
  std::vector<Watcher> watchers;  // in the order of watch()
};

class SimEvent final : public Event {
 public:
  SimEvent(SimHost& host, std::shared_ptr<EventState> state)
      : host_(host), state_(state), handle_(std::move(state)) {}
  void signal() override;
  bool consume() override { return std::exchange(state_->set, false); }
  const Handle& handle() const override { return handle_; }
  const std::shared_ptr<EventState>& state() const { return state_; }

 private:
  SimHost& host_;
  std::shared_ptr<EventState> state_;
  SimHandle handle_;
};

/// An open simulated file.
class SimFile final : public File {
 public:
  /// `lock`: null if it was not asked for.
  SimFile(SimDisk& disk, Info info, std::shared_ptr<SimDiskLock> lock)
      : disk_(disk), info_(std::move(info)), lock_(std::move(lock)) {}
  const Info& info() const override { return info_; }
  Result<uint64_t> note() const override { return disk_.note(); }
  Status set_note(uint64_t note) override { return disk_.set_note(note); }
  Result<Mark> mark() const override { return disk_.mark(); }
  Status set_mark(const Mark& mark) override { return disk_.set_mark(mark); }
  Result<uint64_t> current_size() const override { return disk_.options().size_bytes; }
  Status set_size(uint64_t size_bytes) override { return disk_.set_size(size_bytes); }
  Status secure_erase(uint64_t offset_bytes, uint64_t length_bytes) override {
    return disk_.secure_erase(offset_bytes, length_bytes);
  }
  void adopt_size(uint64_t size_bytes) override { info_.size_bytes = size_bytes; }
  SimDisk& disk() { return disk_; }
  const std::shared_ptr<SimDiskLock>& lock() const { return lock_; }

 private:
  SimDisk& disk_;
  Info info_;
  const std::shared_ptr<SimDiskLock> lock_;
};

/// One reactor, as the world drives it.
class ReactorSlot {
 public:
  explicit ReactorSlot(SimHost& host);

  void drive(Reactor& reactor);
  /// Something happened: run soon.
  void wake();
  /// The queue is gone, and the reactor with it.
  void detach();
  void resume();
  /// Gives no turns from now on / again.
  void hang(bool on);
  bool drives(const Reactor& reactor) const { return reactor_ == &reactor; }
  /// No turn before then, whatever happens.
  void delay_until(uint64_t at_ns) { not_before_ns_ = at_ns; }
  void charge(std::function<uint64_t()> work_ns) { work_ns_ = std::move(work_ns); }
  SimHost& host() { return host_; }
  uint32_t subject() const { return subject_; }
  bool turning() const { return state_ == State::kTurning; }
  Reactor* reactor() const { return reactor_; }  // null before drive() and after the reactor's end
  SimIoQueue* queue = nullptr;

 private:
  enum class State : uint8_t { kSleeping, kScheduled, kTurning };
  void schedule(uint64_t at_ns);
  void due(uint64_t generation);
  void turn();
  void charge_turn(uint64_t& next_turn_ns);
  SimWorld& world();

  SimHost& host_;
  const uint32_t subject_;
  Reactor* reactor_ = nullptr;
  State state_ = State::kSleeping;
  bool woken_ = false;  // while turning: run again before sleeping
  bool hung_ = false;
  bool due_in_pause_ = false;  // a turn came due while hung, or while the process was stopped
  uint64_t scheduled_at_ns_ = kNever;
  uint64_t not_before_ns_ = 0;
  std::function<uint64_t()> work_ns_;  // of a turn, see sim_charge.h; null: none
  bool late_ = false;                  // drawn for the turn that is due
  uint64_t generation_ = 0;            // of the event that counts; others are stale
};

class SimIoQueue final : public IoQueue {
 public:
  explicit SimIoQueue(ReactorSlot& slot) : slot_(slot) { slot.queue = this; }
  ~SimIoQueue() override;

  void submit(IoOp& op) override;
  bool poll() override;
  unsigned in_flight() const override { return in_flight_; }
  uint64_t completed() const override { return ended_; }
  [[noreturn]] void wait(uint64_t deadline_ns) override;
  void wake() override { slot_.wake(); }
  void watch(Event& event, Watch& watch) override;
  void watch_readable(const Handle& handle, Watch& watch) override;
  void watch_writable(const Handle& handle, Watch& watch) override;
  void unwatch(Watch& watch) override;

  ReactorSlot& slot() { return slot_; }
  void event_signalled(Watch& watch);
  /// The process dies: what is at a disk takes effect now, later or never.
  void abandon_all();

 private:
  void hand_over(IoOp& op);
  struct AtDisk {
    IoOp* op;
    uint64_t flush_covers;
    uint64_t moved_bytes;  // a transfer was short: so much of it has taken effect
  };
  void at_disk_until(SimDisk& disk, uint64_t ticket, uint64_t bytes);
  void complete(uint64_t ticket);
  void take_effect_late(const AtDisk& at_disk);
  void watch_state(std::shared_ptr<EventState> state, Watch& watch);

  ReactorSlot& slot_;
  unsigned in_flight_ = 0;
  uint64_t ended_ = 0;
  IoShares shares_{kFilePlaces};
  std::map<uint64_t, AtDisk> at_disk_;  // by order of handing over
  uint64_t handed_over_ = 0;
  IntrusiveList<IoOp> completed_;
  IntrusiveList<Watch> ready_;
  std::map<uint64_t, std::shared_ptr<EventState>> watched_;  // by Watch::cookie
  uint64_t cookies_ = 0;
};

}  // namespace braid::base::sim
