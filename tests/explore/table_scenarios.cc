// What a deregistration and a close promise: who was let in has left before the memory is used
// again, and a registration is read whole or not at all.
#include "base/test_host.h"
#include "tests/explore/scenarios.h"
#include "tests/explore/segment.h"
#include "vhca/soft/mr_table.h"

namespace braid::explore {
namespace {

using soft::MrView;

constexpr uint32_t kEntries = 2;  // full: what is entered anew takes the place that was given up

/// A registration whose every member tells of `number`.
MrView registration(uint64_t number) {
  MrView view;
  view.access = static_cast<uint32_t>(number);
  view.pd = static_cast<uint32_t>(number + 1);
  view.address = number << 32;
  view.length = number << 16;
  view.place = {.segment = static_cast<uint32_t>(number), .offset = number << 8};
  return view;
}
bool whole(const MrView& view) {
  const MrView expected = registration(view.access);
  return view.pd == expected.pd && view.address == expected.address &&
         view.length == expected.length && view.place.segment == expected.place.segment &&
         view.place.offset == expected.place.offset;
}

/// The owner (party 0) takes back what the peer (party 1) may be using.
class Withdrawal {
 public:
  enum class What { kKey, kGate };
  Withdrawal(World& world, What what, bool heavy_fence_exists)
      : world_(world),
        what_(what),
        segment_(world, heavy_fence_exists),
        table_(host_, kEntries, published()) {
    world.share(fresh_entries_, sizeof(soft::MrEntry) * kEntries);
    world.name_place("mr", fresh_entries_, sizeof(soft::MrEntry) * kEntries);
    segment_.inbound.set_gate({.state = inhost::EndState::kOpen, .access = 7, .pd = 1});
    key_ = *table_.add(registration(1));
    other_key_ = *table_.add(registration(2));
    memory_ = reinterpret_cast<soft::SharedWord<uint64_t>*>(fresh_area<64>());
    world.share(memory_, sizeof(*memory_));
    world.add_party([this] { withdraw(); });
    world.add_party([this] { copy(); });
  }

  void judge() {
    if (!used_again_ || world_.dead(0)) return;
    if (memory_->load(std::memory_order_relaxed) != kNewOwner) {
      world_.violate("a store of the copy landed in memory that is used again");
    }
  }

 private:
  static constexpr uint64_t kNewOwner = 0x77;

  std::span<soft::MrEntry> published() {
    fresh_entries_ =
        reinterpret_cast<soft::MrEntry*>(fresh_area<sizeof(soft::MrEntry) * kEntries>());
    return {fresh_entries_, kEntries};
  }

  void withdraw() {
    uint32_t key = inhost::kAnyKey;
    if (what_ == What::kKey) {
      table_.remove(key_);
      key = key_;
    } else {
      segment_.inbound.set_gate({.state = inhost::EndState::kClosed});
    }
    world_.heavy_fence();
    const auto& activity = segment_.view.head().activity;
    const uint64_t copy = inhost::copy_under_way(activity, key);
    while (copy != 0) {
      const uint64_t seen = world_.changes();
      if (inhost::copy_under_way(activity, inhost::kAnyKey) != copy || world_.dead(1)) break;
      if (!world_.wait_for_change(seen)) world_.fail("the owner waits for ever");
    }
    used_again_ = true;
    memory_->store(kNewOwner, std::memory_order_relaxed);
    world_.fence();
    // The same place in the table means something else now.
    if (what_ == What::kKey) (void)*table_.add(registration(3));
    world_.step();
  }

  void copy() {
    for (const uint32_t key : {other_key_, key_, other_key_, key_}) {
      segment_.outbound.begin_copy(key);
      const bool open = segment_.outbound.gate().state == inhost::EndState::kOpen;
      MrView view;
      if (open && soft::read_mr(fresh_entries_[table_.index_of(key)], key, view)) {
        if (!whole(view)) world_.fail("a registration was read half old, half new");
        const bool concerned = what_ == What::kGate || key == key_;
        for (int word = 0; word < 2; ++word) {
          world_.step();
          if (concerned && used_again_) world_.fail("memory was touched that is used again");
          if (concerned) memory_->store(1, std::memory_order_relaxed);
        }
      }
      segment_.outbound.end_copy();
    }
  }

  World& world_;
  const What what_;
  Segment<> segment_;
  base::TestHost host_;
  soft::MrEntry* fresh_entries_ = nullptr;
  soft::MrTable table_;
  soft::SharedWord<uint64_t>* memory_ = nullptr;  // registered under key_
  uint32_t key_ = 0, other_key_ = 0;
  bool used_again_ = false;
};

Scenario withdrawal(Withdrawal::What what, bool heavy_fence_exists = true) {
  return [=](World& world) {
    Withdrawal both(world, what, heavy_fence_exists);
    world.run();
    both.judge();
  };
}

}  // namespace

std::vector<NamedScenario> table_scenarios() {
  using What = Withdrawal::What;
  const Setting setting{.deviations = 2, .random_runs = 2000};
  const Setting deeper{.deviations = 3};
  const Setting killed{.deviations = 1, .kills = true};
  return {
      {"deregistration", withdrawal(What::kKey), setting},
      {"deregistration without membarrier", withdrawal(What::kKey, false), setting},
      {"close", withdrawal(What::kGate), deeper},
      {"close without membarrier", withdrawal(What::kGate, false), setting},
      {"death in a copy, deregistration", withdrawal(What::kKey), killed},
      {"death in a copy, close", withdrawal(What::kGate), killed},
  };
}

}  // namespace braid::explore
