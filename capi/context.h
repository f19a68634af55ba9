// What a context and a device of the C interface are (capi/braid/braid.h). Files by duty:
// context.cc (life, settings), open.cc (opening and closing), memory.cc (memory that is in use),
// io.cc (the data path), braid.cc (the C functions: who may come in, and the words of errors).
//
// Threads: whoever is in the context (capi/turns.h): the program's thread or the keeper.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/reactor.h"
#include "bnbd/device_op.h"
#include "bnbd/remote.h"
#include "capi/braid/braid.h"
#include "capi/disk_name.h"
#include "capi/keeper.h"
#include "capi/regions.h"
#include "capi/settings.h"
#include "capi/turns.h"
#include "reach/hcas.h"
#include "trs/keys.h"

namespace braid::capi {

using Paths = std::vector<reach::PathSpec>;

/// To one server, for the devices that name the same paths and key.
struct Session {
  Paths paths;
  trs::KeyPtr key;  // null: none
  std::unique_ptr<bnbd::RemoteSession> remote;
  unsigned devices = 0;
};

/// A request of braid_submit(), in a slot, or one that a call waits for, on its stack.
struct Request : base::ListNode {
  bnbd::DeviceOp operation;
  braid_device* device = nullptr;
  uint64_t user_data = 0;
  std::optional<base::Errc> ended;
  /// Of a slot: its device has it, and its buffer.
  bool under_way() const { return !linked() && !ended; }
};

/// Requests that ended and were not fetched, of which the program has not heard: a ring, as long as
/// there are slots.
class Completions {
 public:
  explicit Completions(uint32_t slots) : ring_(slots) {}
  bool empty() const { return count_ == 0; }
  uint32_t count() const { return count_; }
  void push(Request& request) { ring_[place(count_++)] = &request; }
  Request& pop() {
    const uint32_t at = first_++;
    if (first_ == ring_.size()) first_ = 0;
    --count_;
    return *ring_[at];
  }
  /// The device is about to go: of what it has done nobody will ask it any more.
  void leave(const braid_device& device) {
    for (uint32_t i = 0; i < count_; ++i) {
      Request& request = *ring_[place(i)];
      if (request.device == &device) request.operation.told();
    }
  }

 private:
  /// Of the one that is so many behind the first.
  uint32_t place(uint32_t behind) const {
    const uint32_t at = first_ + behind;
    return at < ring_.size() ? at : at - static_cast<uint32_t>(ring_.size());
  }
  std::vector<Request*> ring_;
  uint32_t first_ = 0, count_ = 0;
};

/// What a context has from its first device or descriptor on.
struct Engine {
  Engine(uint32_t slots, uint64_t poll_budget_ns)
      : requests(slots), completions(slots), spin_budget(std::in_place, poll_budget_ns) {}
  std::unique_ptr<base::Host> host;
  std::unique_ptr<base::Reactor> reactor;
  std::unique_ptr<reach::Hcas> hcas;
  std::list<std::shared_ptr<Session>> sessions;
  std::vector<Request> requests;
  base::IntrusiveList<Request> free;
  Completions completions;
  uint32_t in_flight = 0;                       // of `requests`
  std::optional<base::SpinBudget> spin_budget;  // always there; made anew for another budget
};

}  // namespace braid::capi

struct braid_device {
  braid_device(braid_context& owner, std::string_view name) : context(owner), target(name) {}
  braid_context& context;
  const std::string target;
  std::shared_ptr<braid::capi::Session> session;      // null: it is of this process
  std::unique_ptr<braid::bnbd::RemoteDevice> remote;  // likewise
  std::unique_ptr<braid::bnbd::BlockDevice> local;
  braid::bnbd::BlockDevice* block = nullptr;
  uint32_t in_flight = 0;  // requests, of both kinds
  std::string explanation;
};

struct braid_context {
 public:
  braid_context() = default;
  ~braid_context();
  braid_context(const braid_context&) = delete;
  braid_context& operator=(const braid_context&) = delete;

  braid::capi::Turns turns;
  std::string error;

  // --- context.cc
  braid::base::Status set(std::string_view name, std::string_view value);
  braid::base::Result<int> descriptor();
  /// Whoever comes in: a thread that waits elsewhere does not any more.
  void begin_turn() {
    if (armed_) disarm();
    turn_began_ns_ = last_turn_ns();
  }
  /// Whoever goes: whether the reactor was turned since.
  bool end_turn() const { return last_turn_ns() != turn_began_ns_; }

  // --- open.cc
  braid::base::Result<braid_device*> open(std::string_view target);
  /// kBusy: a request of another device uses its memory; nothing changes.
  braid::base::Status close(braid_device& device);
  void give_up(braid_device& device);

  // --- memory.cc
  /// Frees what begins at `memory`. kInvalid: none of the owner's does. kBusy: a request uses it.
  braid::base::Status deallocate(const braid_device& owner, const void* memory);

  // --- io.cc
  /// One request, and waits for its end.
  braid::base::Errc run(braid_device& device, const braid_io& io);
  /// As braid_submit(); `wrong`: why the next one is not taken.
  unsigned submit(const braid_io* requests, unsigned count, braid::base::Status& wrong);
  unsigned poll(braid_completion* completions, unsigned count, int64_t timeout_ns);
  /// As braid_wake(): any thread, and signal handlers.
  void wake();
  uint64_t keeper_rounds() const { return keeper_rounds_; }
  braid::capi::Regions regions;

 private:
  // --- context.cc
  braid::base::Status begin();
  void forget_unused();
  uint64_t last_turn_ns() const { return engine_ ? engine_->reactor->turn_began_ns() : 0; }
  void arm();
  void disarm();
  void keeper_round();

  // --- open.cc
  braid::base::Status open_local(braid_device& device, const braid::capi::DiskName& name);
  braid::base::Task<braid::base::Status> open_remote(braid_device& device,
                                                     braid::reach::Target target);
  braid::base::Task<braid::base::Result<std::vector<braid::capi::Paths>>> ways_to(
      braid::capi::Paths paths);
  braid::base::Task<braid::base::Status> join_one_of(braid_device& device,
                                                     std::vector<braid::capi::Paths> ways,
                                                     braid::trs::KeyPtr key);
  braid::base::Task<braid::base::Status> join(braid_device& device, braid::capi::Paths paths,
                                              braid::trs::KeyPtr key);
  braid::base::Status session_options(const braid::capi::Paths& paths,
                                      braid::bnbd::RemoteSessionOptions& options,
                                      braid::vhca::Device*& first);
  braid::base::Task<void> end_requests(braid_device& device);
  braid::base::Task<void> end_apart(braid_device& device, size_t& ending,
                                    braid::base::Signal& ended);
  braid::base::Task<void> end_all_requests();
  braid::base::Task<void> drop(braid_device& device);
  braid::base::Task<void> leave(braid_device& device);
  void close_all();

  // --- memory.cc
  braid::base::Status unused(const braid_device& owner, const void* memory) const;

  // --- io.cc
  void fill(braid::capi::Request& request, const braid_io& io) const;
  static void slot_done(braid::bnbd::DeviceOp& operation, braid::base::Errc status);
  static void call_done(braid::bnbd::DeviceOp& operation, braid::base::Errc status);
  template <typename Done>
  void turn_until(Done done, uint64_t deadline_ns);
  void nothing_fetched(bool waited);

  braid::capi::Settings settings_;
  std::optional<braid::capi::Engine> engine_;
  std::list<std::unique_ptr<braid_device>> devices_;
  std::unique_ptr<braid::capi::Keeper> keeper_;  // of a context with sessions
  uint64_t keeper_rounds_ = 0;
  // wake(): it sets the one, then looks at the other; whoever is about to sleep has set the other
  // and then looks at the one. Null until a device was opened or a descriptor given: no poll waits
  // before. From then on the reactor lives as long as the context does.
  std::atomic<bool> woken_ = false;
  std::atomic<braid::base::Reactor*> sleeper_ = nullptr;
  bool wake_shown_ = false;  // at the descriptor, until the program has come for it
  // For a program with a loop of its own; -1: it has none.
  int descriptor_ = -1;         // epoll: of the next, and of the reactor's queue
  int completed_event_ = -1;    // the keeper has completions
  bool armed_ = false;          // nobody has come in since arm()
  uint64_t turn_began_ns_ = 0;  // the reactor's last, when whoever is in came
};
