// For tests of what clients do to each other: requests that come as fast as they are answered.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "bnbd/test_rig.h"

namespace braid::bnbd::test {

/// Lets the time pass; `act`, if there is one, is called whenever anything has happened.
inline void run_acting(base::sim::SimWorld& world, uint64_t for_ns,
                       const std::function<void()>& act) {
  const uint64_t end_ns = world.now_ns() + for_ns;
  (void)world.run_until(
      [&] {
        if (act) act();
        return world.now_ns() >= end_ns;
      },
      for_ns);
}

struct LoadShape {
  size_t depth = 2;
  uint64_t bytes = 4096;
  std::optional<BlockOp> op;  // none: reads, and one in three a write
  size_t reactor = 0;
};

/// So many requests at a time, for as long as it is not stopped.
class Load {
 public:
  Load(ClientNode& client, RemoteDevice& device, const LoadShape& shape)
      : queue_(device.queues().at(shape.reactor)), shape_(shape) {
    const bool moves = !shape.op || *shape.op == BlockOp::kRead || *shape.op == BlockOp::kWrite;
    places_ = device.info().size_bytes / shape.bytes;
    for (size_t i = 0; i < shape.depth; ++i) {
      Slot& slot = slots_.emplace_back();
      slot.load = this;
      slot.request.length_bytes = shape.op == BlockOp::kFlush ? 0 : shape.bytes;
      if (moves) slot.memory = std::make_unique<std::byte[]>(shape.bytes);
      slot.request.buffer.address = slot.memory.get();
      slot.request.context = &slot;
      slot.request.done = &ended;
    }
    client.reactors.at(shape.reactor)->post([this] {
      for (Slot& slot : slots_) next(slot);
    });
  }
  uint64_t done() const { return done_; }
  uint64_t failed() const { return failed_; }
  void stop() { stopped_ = true; }
  bool idle() const { return in_flight_ == 0; }

 private:
  struct Slot {
    BlockRequest request;
    Load* load = nullptr;
    std::unique_ptr<std::byte[]> memory;
  };
  void next(Slot& slot) {
    ++in_flight_;
    const BlockOp mixed = ++begun_ % 3 == 0 ? BlockOp::kWrite : BlockOp::kRead;
    slot.request.op = shape_.op.value_or(mixed);
    if (slot.request.length_bytes > 0)
      slot.request.offset_bytes = begun_ * 7 % std::min<uint64_t>(places_, 256) * shape_.bytes;
    queue_.device->submit(slot.request);
  }
  static void ended(BlockRequest& request, base::Errc status) {
    auto& slot = *static_cast<Slot*>(request.context);
    Load& load = *slot.load;
    --load.in_flight_;
    ++load.done_;
    if (status != base::Errc::kOk) ++load.failed_;
    if (!load.stopped_) load.next(slot);
  }
  const BlockQueue queue_;
  const LoadShape shape_;
  uint64_t places_ = 0;
  std::deque<Slot> slots_;
  uint64_t begun_ = 0, done_ = 0, failed_ = 0, in_flight_ = 0;
  bool stopped_ = false;
};

}  // namespace braid::bnbd::test
