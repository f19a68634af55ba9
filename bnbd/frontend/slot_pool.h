// The requests that a front end may have in flight: few at first, and more, in parts as large as
// what there is, when one finds them all taken. So a disk that is mapped and idle has little
// memory, and mapping it does not wait for more.
//
//   poll: no slot --grow()--> worker: the next part's region, every page of it --> free slots
//   meanwhile, and if there is no memory: requests wait, and those that have slots go on
//
// A part is used when all of its pages are there, and never goes back: I/O waits for slots, which
// end by themselves, and for no memory.
//
// Threads: the reactor's, but in_use(), and create(), on a worker.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/reactor.h"
#include "bnbd/frontend/offloaded.h"
#include "bnbd/frontend/request_slot.h"

namespace braid::bnbd {

template <typename Slot>
class SlotPool;

/// Who holds it makes slots. One at a time in a process: where memory is short they hold one
/// worker, and no reactor starts a thread to ask for more. Null: somebody does.
inline std::shared_ptr<void> begin_making_slots() {
  static std::atomic<bool> making{false};
  if (making.exchange(true)) return nullptr;
  return {&making, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(false); }};
}

/// Between a pool and the worker that makes its next part, which either may outlive.
template <typename Slot>
class SlotMaker {
 public:
  using Made = base::Result<std::unique_ptr<SlotPart<Slot>>>;

  SlotMaker(BlockDevice& device, uint32_t payload_bytes, SlotPool<Slot>& pool)
      : pool_(&pool), payload_bytes_(payload_bytes), device_(&device) {}

  /// On a worker.
  void make(unsigned count) {
    const std::lock_guard lock(mutex_);
    if (device_ != nullptr) made_ = SlotPart<Slot>::create(*device_, count, payload_bytes_);
  }
  /// What was made; the reactor's.
  Made take() {
    const std::lock_guard lock(mutex_);
    Made made = std::move(*made_);
    made_.reset();
    return made;
  }
  /// Before the pool goes, and the device after it: waits for a part that is just being made.
  void end() {
    const std::lock_guard lock(mutex_);
    pool_ = nullptr;
    device_ = nullptr;
    made_.reset();
  }
  /// The reactor's. Null: it has gone.
  SlotPool<Slot>* pool() const { return pool_; }

 private:
  SlotPool<Slot>* pool_;
  const uint32_t payload_bytes_;
  std::mutex mutex_;
  BlockDevice* device_;
  std::optional<Made> made_;
};

template <typename Slot>
class SlotPool {
 public:
  /// Of an idle disk. Attaching it has two requests at a time: with one slot it waits for another.
  static constexpr unsigned kFirst = 2;
  static constexpr uint64_t kRetryNs = base::kSecond;            // after memory was short
  static constexpr uint64_t kAgainNs = 10 * base::kMillisecond;  // while others are at it

  /// `first` slots now, `most` in the end. `device` outlives the pool.
  static base::Result<std::unique_ptr<SlotPool>> create(BlockDevice& device, unsigned first,
                                                        unsigned most, uint32_t payload_bytes) {
    BRAID_TRY(auto part, SlotPart<Slot>::create(device, std::min(first, most), payload_bytes));
    std::unique_ptr<SlotPool> pool(new SlotPool(device, most, payload_bytes));
    pool->adopt(std::move(part));
    return pool;
  }
  ~SlotPool() { maker_->end(); }
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  /// Runs `prepare` on each slot that there is and, before its first use, on each that comes;
  /// `grown` when some have come, or could not. Once.
  void set_owner(std::function<void(Slot&)> prepare, std::function<void()> grown) {
    prepare_ = std::move(prepare);
    grown_ = std::move(grown);
    for_each(prepare_);
  }
  /// A request found no slot: has a worker make more, if there may be more and one has time. Else
  /// the reactor does not sleep for long: who then still finds none asks again.
  void grow(base::Reactor& reactor) {
    if (growing_ || size_ == most_) return;
    std::shared_ptr<void> turn;
    const bool may_ask = reactor.now_ns() >= not_before_ns_ && reactor.host().worker_is_idle();
    if (may_ask) turn = begin_making_slots();
    if (turn == nullptr) {
      if (!again_.pending()) reactor.schedule_after(again_, kAgainNs);
      return;
    }
    growing_ = true;
    reactor.spawn(grow_by(reactor, maker_, std::min(size_, most_ - size_), std::move(turn)));
  }
  bool growing() const { return growing_; }

  uint32_t payload_bytes() const { return payload_bytes_; }
  unsigned size() const { return size_; }
  unsigned most() const { return most_; }
  unsigned in_use() const { return base::read_shared(in_use_); }
  bool empty() const { return free_.empty(); }
  template <typename Function>
  void for_each(const Function& function) {
    for (const auto& part : parts_) {
      for (Slot& slot : part->slots()) function(slot);
    }
  }

  /// A free slot, or null.
  Slot* acquire() {
    Slot* const slot = free_.pop_front();
    if (slot != nullptr) base::add_shared(in_use_, 1);
    return slot;
  }
  void release(Slot& slot) {
    base::subtract_shared(in_use_, 1);
    free_.push_front(slot);  // the one whose memory is warm
  }

 private:
  using Maker = SlotMaker<Slot>;

  SlotPool(BlockDevice& device, unsigned most, uint32_t payload_bytes)
      : most_(most),
        payload_bytes_(payload_bytes),
        maker_(std::make_shared<Maker>(device, payload_bytes, *this)) {}

  void adopt(std::unique_ptr<SlotPart<Slot>> part) {
    for (Slot& slot : part->slots()) {
      if (prepare_) prepare_(slot);
      free_.push_back(slot);
    }
    size_ += static_cast<unsigned>(part->slots().size());
    parts_.push_back(std::move(part));
  }
  static base::Task<void> grow_by(base::Reactor& reactor, std::shared_ptr<Maker> maker,
                                  unsigned count, std::shared_ptr<void> turn) {
    std::function<void()> work = [maker, count, turn = std::move(turn)] { maker->make(count); };
    co_await reactor.offload(std::move(work));
    if (SlotPool* const pool = maker->pool()) pool->made(reactor, maker->take());
  }
  void made(base::Reactor& reactor, typename Maker::Made part) {
    growing_ = false;
    if (part.ok()) {
      adopt(std::move(*part));
      short_told_ = false;
    } else {
      not_before_ns_ = reactor.now_ns() + kRetryNs;
      if (!std::exchange(short_told_, true)) {
        reactor.log().warning("{} requests at a time until there is memory: {}", size_,
                              part.error().message());
      }
    }
    grown_();
  }

  const unsigned most_;
  const uint32_t payload_bytes_;
  const std::shared_ptr<Maker> maker_;
  std::function<void(Slot&)> prepare_;
  std::function<void()> grown_;
  std::vector<std::unique_ptr<SlotPart<Slot>>> parts_;
  base::IntrusiveList<Slot> free_;
  unsigned size_ = 0;
  unsigned in_use_ = 0;
  bool growing_ = false;
  bool short_told_ = false;  // since memory was had
  uint64_t not_before_ns_ = 0;
  base::Timer again_{[](base::Timer&) {}, nullptr};  // a turn is all that it is for
};

/// A pool for a front end's server, made where that holds nobody up. `device` outlives it.
template <typename Server>
base::Task<base::Result<std::unique_ptr<SlotPool<typename Server::Slot>>>> make_slots(
    base::Reactor& reactor, BlockDevice& device, unsigned first, unsigned most) {
  using Pool = SlotPool<typename Server::Slot>;
  // The device's properties are its reactor's.
  const uint32_t payload_bytes = slot_payload_bytes(device.info(), Server::kPayloadMax);
  std::function<base::Result<std::unique_ptr<Pool>>()> make = [&device, first, most, payload_bytes,
                                                               &host = reactor.host()] {
    // While memory is to be had: so another worker is idle when this one is kept by a call.
    host.execute([] {});
    return Pool::create(device, first, most, payload_bytes);
  };
  co_return co_await offloaded(reactor, std::move(make));
}

}  // namespace braid::bnbd
