// Atomics on a word outside of segments: peers read and write it by system calls, under a claim
// that the kernel takes back from the dead. No addition is lost, each lands once or, if its peer
// died, perhaps; none lands in memory that the owner has taken back.
#include <array>

#include "base/test_host.h"
#include "tests/explore/scenarios.h"
#include "tests/explore/segment.h"
#include "vhca/soft/inhost/access.h"
#include "vhca/soft/mr_table.h"

namespace braid::explore {
namespace {

using soft::Execution;
using soft::Outcome;

constexpr uint32_t kAdditionEntries = 2;
constexpr uint32_t kAdditionPd = 1;
constexpr uint32_t kAdditionQp = 9;  // of the owner
constexpr uint64_t kAdditionAddress = 1 << 20;

/// Two peers (parties 0 and 1) add to a word, and its owner deregisters it.
class Additions {
 public:
  explicit Additions(World& world)
      : world_(world), first_(world), second_(world), table_(host_, kAdditionEntries, published()) {
    world.share(entries_, sizeof(soft::MrEntry) * kAdditionEntries);
    constexpr inhost::Gate kOpen{
        .state = inhost::EndState::kOpen, .access = IBV_ACCESS_REMOTE_ATOMIC, .pd = kAdditionPd};
    first_.inbound.set_gate(kOpen);
    second_.inbound.set_gate(kOpen);
    soft::MrView view;
    view.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    view.pd = kAdditionPd;
    view.address = kAdditionAddress;
    view.length = sizeof(word_);
    key_ = *table_.add(view);
    world.add_party([this] { add(0, first_.outbound); });
    world.add_party([this] { add(1, second_.outbound); });
    world.add_party([this] { take_back(); });
  }

  void judge() {
    if (word_ == written_ && written_ >= completed_) return;
    world_.violate(fmt::format("the word is {} after {} additions, of which {} completed", word_,
                               written_, completed_));
  }

 private:
  static constexpr unsigned kNobody = 99;

  /// What a process reaches through the kernel: each call a step.
  class ForeignWord {
   public:
    ForeignWord(Additions& all, unsigned party) : all_(all), party_(party) {}
    Execution claim() {
      all_.world_.step();
      if (!all_.free()) return {.outcome = Outcome::kFull};
      all_.holder_ = party_;
      return {};
    }
    Execution read(uint64_t& value) {
      touch();
      value = all_.word_;
      return {};
    }
    Execution write(uint64_t value) {
      touch();
      all_.word_ = value;
      ++all_.written_;
      return {};
    }
    void let_go() {
      if (all_.holder_ != party_) return;
      all_.world_.step();
      all_.holder_ = kNobody;
    }

   private:
    void touch() {
      all_.world_.step();
      if (all_.used_again_) all_.world_.fail("a word was touched that is used again");
    }
    Additions& all_;
    const unsigned party_;
  };

  std::span<soft::MrEntry> published() {
    entries_ =
        reinterpret_cast<soft::MrEntry*>(fresh_area<sizeof(soft::MrEntry) * kAdditionEntries>());
    return {entries_, kAdditionEntries};
  }
  bool free() const { return holder_ == kNobody || world_.dead(holder_); }

  void add(unsigned party, inhost::OutboundRing& ring) {
    soft::Request request;
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.rkey = key_;
    request.remote_address = kAdditionAddress;
    request.length = soft::kAtomicBytes;
    request.compare_add = 1;
    for (;;) {
      Execution execution{.outcome = Outcome::kFailed};
      (void)inhost::visit(ring, key_, [&](const inhost::Gate& gate) {
        soft::MrView mr;
        const soft::MrEntry& entry = entries_[table_.index_of(key_)];
        if (inhost::look_up(entry, request, gate.pd, kAdditionQp, mr) != IBV_WC_SUCCESS) return;
        ForeignWord word(*this, party);
        uint64_t before = 0;
        execution = inhost::change_claimed(request, word, before);
        word.let_go();
      });
      if (execution.outcome == Outcome::kDone) ++completed_;
      if (execution.outcome != Outcome::kFull) return;
      if (!world_.wait_until([this] { return free(); })) world_.fail("a claim is never let go");
    }
  }

  void take_back() {
    const inhost::ActivityLine* const lines[] = {&first_.view.head().activity,
                                                 &second_.view.head().activity};
    const auto under_way = [&](int i) { return inhost::copy_under_way(*lines[i], key_); };
    const auto copies =
        inhost::withdraw([this] { table_.remove(key_); }, [this] { world_.heavy_fence(); },
                         [&] {
                           return std::array<uint64_t, 2>{under_way(0), under_way(1)};
                         });
    for (unsigned i = 0; i < 2; ++i) {
      while (copies[i] != 0) {
        const uint64_t seen = world_.changes();
        if (inhost::copy_under_way(*lines[i], inhost::kAnyKey) != copies[i]) break;
        if (world_.dead(i)) break;
        if (!world_.wait_for_change(seen)) world_.fail("the owner waits for ever");
      }
    }
    world_.step();
    used_again_ = true;
  }

  World& world_;
  Segment<0> first_;
  Segment<1> second_;
  base::TestHost host_;
  soft::MrEntry* entries_ = nullptr;
  soft::MrTable table_;
  uint32_t key_ = 0;
  uint64_t word_ = 0;  // the owner's memory; nobody but the kernel reaches it
  unsigned holder_ = kNobody;
  uint64_t written_ = 0;
  uint64_t completed_ = 0;
  bool used_again_ = false;
};

Scenario additions() {
  return [](World& world) {
    Additions all(world);
    world.run();
    all.judge();
  };
}

}  // namespace

std::vector<NamedScenario> atomic_scenarios() {
  return {
      {"additions to a claimed word", additions(), {.deviations = 2, .random_runs = 2000}},
      {"death among additions", additions(), {.deviations = 1, .kills = true}},
  };
}

}  // namespace braid::explore
