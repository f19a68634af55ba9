// The user of a remote device, as the input has it: a few requests at a time, on each of the
// client's reactors, each of which ends once and says of flushes what holds.
#pragma once

#include <array>

#include "tests/fuzz/bnbd_flush_judge.h"
#include "tests/fuzz/bnbd_honest_client.h"

namespace braid::bnbd::two_party {

class DeviceUser {
 public:
  DeviceUser(HonestClient& client, FlushJudge& judge) : client_(client), judge_(judge) {
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i].place = i * kMaxIoBytes;
  }

  /// One request, if there is room for it, and no change under way where it changes.
  void submit(Numbers& numbers) {
    Slot* const slot = free_slot();
    if (slot == nullptr) return;
    static constexpr std::array kOps = {BlockOp::kRead, BlockOp::kWrite, BlockOp::kFlush,
                                        BlockOp::kDiscard, BlockOp::kWriteZeroes};
    BlockRequest& io = slot->io;
    io.op = kOps[numbers.below(kOps.size())];
    io.force_unit_access = io.op == BlockOp::kWrite && numbers.odd(4);
    const bool flush = io.op == BlockOp::kFlush;
    slot->first = flush ? 0 : numbers.below(40);
    slot->blocks = flush ? 0 : 1u << numbers.below(2);
    io.preflush = io.op == BlockOp::kWrite && numbers.odd(8);
    const size_t reactor = client_.reactors.size() == 1 ? 0 : numbers.below(2);
    if (slot->changes() && !judge_may_change(*slot)) return;
    begin(*slot, reactor);
  }
  bool idle() const {
    return std::none_of(slots_.begin(), slots_.end(), [](const Slot& each) { return each.busy; });
  }

 private:
  struct Slot {
    BlockRequest io;
    size_t place = 0;  // in the client's memory
    size_t first = 0, blocks = 0;
    FlushJudge::Flush flush;
    DeviceUser* user = nullptr;
    bool busy = false;
    bool changes() const { return io.op != BlockOp::kRead && io.op != BlockOp::kFlush; }
    bool flushes() const { return io.op == BlockOp::kFlush || io.preflush; }
  };

  Slot* free_slot() {
    const auto its = std::find_if(slots_.begin(), slots_.end(), [](Slot& s) { return !s.busy; });
    return its == slots_.end() ? nullptr : &*its;
  }
  bool judge_may_change(const Slot& slot) const {
    for (size_t i = 0; i < slot.blocks; ++i)
      if (!judge_.may_change(slot.first + i)) return false;
    return true;
  }
  void begin(Slot& slot, size_t reactor) {
    slot.user = this;
    slot.busy = true;
    slot.io.offset_bytes = slot.first * kBlockBytes;
    slot.io.length_bytes = slot.blocks * kBlockBytes;
    slot.io.buffer = client_.buffer(slot.place);
    slot.io.context = &slot;
    slot.io.done = [](BlockRequest& request, Errc how) {
      Slot& its = *static_cast<Slot*>(request.context);
      its.user->ended(its, how);
    };
    if (slot.changes()) {
      for (size_t i = 0; i < slot.blocks; ++i) judge_.change_begins(slot.first + i);
    }
    const BlockQueue queue = client_.device->queues().at(reactor);
    // A flush covers what has ended when it is submitted.
    queue.reactor->post([&slot, to = queue.device] {
      if (slot.flushes()) slot.flush = slot.user->judge_.flush_begins();
      to->submit(slot.io);
    });
    queue.reactor->wake();
  }
  void ended(Slot& slot, Errc how) {
    require(slot.busy, "each request ends once");
    slot.busy = false;
    const bool well = how == Errc::kOk;
    if (slot.flushes()) judge_.flush_ends(slot.flush, well);
    if (!slot.changes()) return;
    for (size_t i = 0; i < slot.blocks; ++i)
      judge_.change_ends(slot.first + i, well, slot.io.force_unit_access);
  }

  HonestClient& client_;
  FlushJudge& judge_;
  std::array<Slot, HonestClient::kPlaces> slots_;
};

}  // namespace braid::bnbd::two_party
