// DeviceRun: one client's work on one open device: bursts of random requests, or a pass over all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/reactor.h"
#include "base/sim.h"
#include "bnbd/block.h"
#include "bnbd/filters.h"
#include "tests/sim/judge.h"
#include "tests/sim/plan.h"

namespace braid::sim {

/// What a client is asked to do now.
enum class Activity : uint8_t { kWork, kRest, kVerify, kClose };

/// What the parts of one client process that share a reactor share. Outlives them.
struct WorkContext {
  base::sim::SimHost& host;
  base::Reactor& reactor;
  Judge& judge;
  Board& board;
  const Plan& plan;
  size_t client;
  base::sim::SimRandom random;
  Activity activity = Activity::kWork;
  const ClientPlan& me() const { return plan.clients[client]; }
};

class DeviceRun {
 public:
  /// `writes`: whether it may, not only whether the device would let it.
  DeviceRun(WorkContext& context, size_t device, bool writes);
  ~DeviceRun();

  /// Begins. The judge knows of the handle already. `filters`: over the device, or null.
  base::Status opened(std::unique_ptr<bnbd::BlockDevice> device,
                      std::unique_ptr<bnbd::FilterStack> filters = nullptr);
  void activity_changed();
  /// Submits nothing any more.
  void stop();
  bool idle() const { return in_flight_ == 0; }
  bool verified() const { return verify_at_ >= sectors() && in_flight_ == 0; }
  /// Null until opened, and for a device without.
  bnbd::FilterStack* filters() { return filters_.get(); }
  /// The filters have not followed to the size of the device yet.
  bool behind() const { return filters_ != nullptr && device_bytes() > shown_bytes(); }

 private:
  struct Slot {
    explicit Slot(DeviceRun* owner) : run(owner), hears(&DeviceRun::hears_of, this) {}
    DeviceRun* const run;
    bnbd::BlockRequest request;
    std::byte* memory = nullptr;     // in the region
    std::vector<std::byte> foreign;  // memory that no region holds
    uint64_t id = 0;
    bool busy = false;
    base::Timer hears;  // of the end of a change that was told_later
    base::Errc ended = base::Errc::kOk;
  };
  bnbd::BlockDevice& top() const { return filters_ ? filters_->top() : *block_device_; }
  uint64_t device_bytes() const { return block_device_->info().size_bytes; }
  uint64_t shown_bytes() const { return top().info().size_bytes; }
  uint64_t sectors() const;      // as planned
  uint64_t sectors_now() const;  // as its user knows
  Judge& judge() { return context_.judge; }
  static void tick(base::Timer& timer);
  void pump();
  void pump_at_home();
  void work();
  void verify();
  Slot* free_slot();
  OpDescription draw_op();
  void draw_range(OpDescription& op, uint64_t sectors_max);
  bool allowed(const OpDescription& op);
  void submit(Slot& slot, const OpDescription& op);
  void begin(Slot& slot, const OpDescription& op, bnbd::BlockDevice& device);
  bnbd::BlockOp way_to_zero(const OpDescription& op);
  void fill(Slot& slot, const OpDescription& op);
  bool refused_by_checksum();
  bool hears_later(const Slot& slot, const OpDescription& op) const;
  static void done(bnbd::BlockRequest& request, base::Errc status);
  static void hears_of(base::Timer& timer);
  void heard(Slot& slot);

  WorkContext& context_;
  const size_t device_index_;
  const bool writes_;
  bool stopped_ = false;
  std::unique_ptr<bnbd::BlockDevice> block_device_;
  std::unique_ptr<bnbd::FilterStack> filters_;
  std::vector<bnbd::BlockQueue> queues_;  // as each reactor submits to it; empty: its own only
  std::unique_ptr<bnbd::Region> region_;
  std::vector<std::unique_ptr<Slot>> slots_;
  uint64_t mismatches_ = 0;  // of all filters, at the last end of a request
  uint32_t in_flight_ = 0;
  uint64_t verify_at_ = 0;
  uint64_t io_sectors_max_ = 0;
  base::Timer timer_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace braid::sim
