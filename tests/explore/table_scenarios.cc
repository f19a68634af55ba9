// What a deregistration and a close promise: who was let in has left before the memory is used
// again, and a registration is read whole or not at all. The steps of both sides are those of
// vhca/soft/inhost/access.h, vhca/soft/withdrawal.h and of the device's table of copies.
#include "base/test_host.h"
#include "tests/explore/scenarios.h"
#include "tests/explore/segment.h"
#include "vhca/soft/inhost/access.h"
#include "vhca/soft/inhost/fence.h"
#include "vhca/soft/mr_table.h"
#include "vhca/soft/withdrawal.h"

namespace braid::explore {
namespace {

using soft::MrView;

constexpr uint32_t kEntries = 2;  // full: what is entered anew takes the place that was given up
constexpr uint32_t kEntriesWithWindows = 8;  // which get none of the last half
constexpr uint32_t kPd = 1;
constexpr uint32_t kQp = 9;             // of the owner
constexpr uint64_t kAddress = 1 << 20;  // what the peer asks for, of whatever registration
constexpr uint32_t kBytes = 16;
constexpr size_t kMappedBytes = 544;  // what the peer asks of registration 2 lies at its end

/// A registration of which every member but the PD tells of `number`. All hold what the peer asks.
MrView registration(uint32_t number) {
  MrView view;
  view.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND | number << 8;
  view.pd = kPd;
  view.address = kAddress - uint64_t{number} * 8;
  view.length = 64 + number;
  view.place = {.segment = number, .offset = uint64_t{number} << 8};
  return view;
}
bool whole(const MrView& view) {
  const MrView expected = registration(view.access >> 8);
  return view.address == expected.address && view.length == expected.length &&
         view.place.segment == expected.place.segment && view.place.offset == expected.place.offset;
}

/// Memory that a scenario has.
class Area final : public base::Segment {
 public:
  Area(void* data, size_t size) : data_(static_cast<std::byte*>(data)), size_(size) {}
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }
  const base::Handle& handle() const override { std::abort(); }

 private:
  std::byte* const data_;
  const size_t size_;
};

/// The process of a party.
class Process final : public base::PeerProcess {
 public:
  Process(World& world, unsigned party) : world_(world), party_(party) {}
  bool alive() const override { return !world_.dead(party_); }
  base::Errc write(uint64_t, std::span<const std::span<const std::byte>>) override { std::abort(); }
  base::Errc read(uint64_t, std::span<const std::span<std::byte>>) override { std::abort(); }

 private:
  World& world_;
  const unsigned party_;
};

/// As InHostWire, with one peer.
struct OneWire {
  static std::unique_ptr<soft::PeerFence> fence_local(uint32_t) { return nullptr; }
  std::unique_ptr<soft::PeerFence> fence_peers(uint32_t key) {
    return inhost::fence_copies(copies, key, [this] { world.heavy_fence(); });
  }
  World& world;
  inhost::CopyTable copies = {};
};

/// The owner (party 0) takes back what the peer (party 1) may be using.
class Withdrawal {
 public:
  /// The key; the gate; the gate, then the connection's end, then the key; the key of a window.
  enum class What { kKey, kGate, kBoth, kWindow };
  struct Options {
    What what;
    bool heavy_fence_exists = true;
    bool one_copy = false;
    bool scribbled = false;  // nobody's memory is kept from the other then; bounds hold
  };
  Withdrawal(World& world, const Options& options)
      : world_(world),
        options_(options),
        segment_(world, options.heavy_fence_exists),
        table_(host_, static_cast<uint32_t>(published().size()), published()),
        wire_{.world = world},
        copies_(std::make_shared<inhost::PeerCopies>(
            std::make_unique<Area>(&segment_.view.head(), kGeometry.total_bytes()), peer())) {
    world.share(fresh_entries_, published().size_bytes());
    world.name_place("mr", fresh_entries_, published().size_bytes());
    wire_.copies.add(copies_);
    segment_.inbound.set_gate(
        {.state = inhost::EndState::kOpen, .access = IBV_ACCESS_REMOTE_WRITE, .pd = kPd});
    key_ = *table_.add(registration(1));
    other_key_ = *table_.add(registration(2));
    if (options.what == What::kWindow) bind();
    mapping_ = fresh_area<kMappedBytes>();
    world.share(mapping_, kMappedBytes);
    memory_ = reinterpret_cast<soft::SharedWord<uint64_t>*>(
        mapping_ + *inhost::offset_in_mapping(registration(1), request(key_), kMappedBytes));
    world.add_party([this] { take_back(); });
    world.add_party([this] { copy(); });
  }

  void judge() {
    if (!used_again_ || world_.dead(0) || options_.scribbled) return;
    if (memory_->load(std::memory_order_relaxed) != kNewOwner) {
      world_.violate("a store of the copy landed in memory that is used again");
    }
  }

 private:
  static constexpr uint64_t kNewOwner = 0x77;

  static soft::Request request(uint32_t key) {
    soft::Request request;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.rkey = key;
    request.remote_address = kAddress;
    request.length = kBytes;
    return request;
  }
  std::span<soft::MrEntry> published() {
    if (fresh_entries_ == nullptr) {
      fresh_entries_ = reinterpret_cast<soft::MrEntry*>(
          fresh_area<sizeof(soft::MrEntry) * kEntriesWithWindows>());
    }
    return {fresh_entries_, options_.what == What::kWindow ? kEntriesWithWindows : kEntries};
  }
  /// A window on the memory of registration 1; its key is what the peer has.
  void bind() {
    const MrView mr = registration(1);
    const uint32_t of_memory = std::exchange(key_, *table_.add_window(kPd));
    if (!table_.bind({.key = key_,
                      .pd = kPd,
                      .qp = kQp,
                      .mr_key = of_memory,
                      .access = IBV_ACCESS_REMOTE_WRITE,
                      .address = mr.address,
                      .length = mr.length})) {
      std::abort();
    }
  }

  /// Nobody of it: nothing here resolves what the peer's table says.
  std::shared_ptr<inhost::PeerDevice> peer() {
    return std::make_shared<inhost::PeerDevice>(
        host_, base::PeerIdentity{}, inhost::DeviceId{},
        std::make_unique<Area>(fresh_entries_, published().size_bytes()),
        static_cast<uint32_t>(published().size()), std::make_unique<Process>(world_, 1));
  }

  // What is allocated belongs to the scenario: the party's stack may be left as it is.
  void take_back() {
    // Each access is scribbled on: without other disturbance, some are to be before the end.
    if (options_.scribbled) (void)world_.wait_until([this] { return visits_ == 2; });
    const bool of_window = options_.what == What::kWindow;
    const bool of_key = options_.what != What::kGate && !of_window;
    if (options_.what != What::kKey && !of_window) close();
    if (of_window) invalidate();
    if (options_.what == What::kBoth) wire_.copies.remove(*copies_);
    MrView view = registration(1);
    view.key = key_;
    if (of_key) fence_ = soft::withdraw_memory(table_, wire_, view);
    while (of_key ? !fence_passed() : !copy_ended()) {
      const uint64_t seen = world_.changes();
      if (of_key ? fence_passed() : copy_ended()) break;
      if (world_.wait_for_change(seen)) continue;
      // A peer that says that it is at work for ever is waited for until it dies.
      if (options_.scribbled) return;
      world_.fail("the owner waits for ever");
    }
    used_again_ = true;
    memory_->store(kNewOwner, std::memory_order_relaxed);
    world_.fence();
    if (of_window) table_.fenced(key_);
    // The same place in the table means something else now.
    if (of_key) (void)*table_.add(registration(3));
    world_.step();
  }

  /// As a link does.
  void close() {
    last_copy_ = inhost::withdraw(
        [this] { segment_.inbound.set_gate({.state = inhost::EndState::kClosed}); },
        [this] { world_.heavy_fence(); }, [this] { return copies_->under_way(inhost::kAnyKey); });
  }
  /// As a queue pair does.
  void invalidate() {
    if (!table_.invalidate(key_, kQp)) std::abort();
    last_copy_ = inhost::fence_window(*copies_, key_);
  }
  bool fence_passed() {
    if (fence_ == nullptr) return true;
    // A fence asks seldom who is dead. Its looks are steps: with nobody else alive they are no
    // other orders to try.
    unsigned looks = world_.dead(1) ? inhost::kLooksOfAQuestion : 1;
    while (looks > 0 && !fence_->passed()) --looks;
    return looks > 0;
  }
  bool copy_ended() const { return last_copy_ == 0 || copies_->ended(last_copy_); }

  void copy() {
    const uint32_t keys[] = {other_key_, key_, other_key_, key_};
    for (const uint32_t key : std::span(keys).subspan(options_.one_copy ? 3 : 0)) {
      (void)inhost::visit(segment_.outbound, key,
                          [&](const inhost::Gate& gate) { touch(gate, request(key)); });
      ++visits_;
    }
  }

  void touch(const inhost::Gate& gate, const soft::Request& request) {
    if (gate.state != inhost::EndState::kOpen ||
        soft::check_qp_access(request.opcode, gate.access) != IBV_WC_SUCCESS) {
      return;
    }
    MrView mr;
    const soft::MrEntry& entry = fresh_entries_[table_.index_of(request.rkey)];
    // What a window says has no number.
    const bool numbered = !options_.scribbled && options_.what != What::kWindow;
    if (numbered && soft::read_mr(entry, request.rkey, mr) && !whole(mr)) {
      world_.fail("a registration was read half old, half new");
    }
    if (inhost::look_up(entry, request, gate.pd, kQp, mr) != IBV_WC_SUCCESS) return;
    if (numbered && !whole(mr)) world_.fail("a key was resolved half old, half new");
    const auto offset = inhost::offset_in_mapping(mr, request, kMappedBytes);
    if (!offset.has_value()) return;
    if (*offset > kMappedBytes || kMappedBytes - *offset < kBytes) {
      world_.fail("memory was touched that is not mapped");
    }
    const bool concerned = options_.what == What::kGate || request.rkey == key_;
    constexpr uint64_t kCopied = 1;
    for (uint32_t word = 0; word < kBytes; word += sizeof(kCopied)) {
      world_.step();
      if (concerned && used_again_ && !options_.scribbled) {
        world_.fail("memory was touched that is used again");
      }
      soft::copy_to_shared(mapping_ + *offset + word, reinterpret_cast<const std::byte*>(&kCopied),
                           sizeof(kCopied));
    }
  }

  World& world_;
  const Options options_;
  Segment<> segment_;
  base::TestHost host_;
  soft::MrEntry* fresh_entries_ = nullptr;
  soft::MrTable table_;
  OneWire wire_;
  const std::shared_ptr<const inhost::PeerCopies> copies_;
  std::unique_ptr<soft::PeerFence> fence_;
  uint64_t last_copy_ = 0;
  std::byte* mapping_ = nullptr;                  // of the segment that all is registered in
  soft::SharedWord<uint64_t>* memory_ = nullptr;  // in it, registered under key_
  uint32_t key_ = 0, other_key_ = 0;
  unsigned visits_ = 0;
  bool used_again_ = false;
};

Scenario withdrawal(const Withdrawal::Options& options) {
  return [=](World& world) {
    Withdrawal both(world, options);
    world.run();
    both.judge();
  };
}

/// One party removes a registration and enters another in its place, the other one reads.
Scenario entry_that_changes() {
  return [](World& world) {
    auto* const entry = reinterpret_cast<soft::MrEntry*>(fresh_area<sizeof(soft::MrEntry)>());
    world.share(entry, sizeof(*entry));
    world.name_place("mr", entry, sizeof(*entry));
    base::TestHost host;
    soft::MrTable table(host, 1, {entry, 1});
    const uint32_t key = *table.add(registration(1));
    world.add_party([&] {
      MrView view;
      if (soft::read_mr(*entry, key, view) && !whole(view)) {
        world.fail("a registration was read half old, half new");
      }
    });
    world.add_party([&] {
      table.remove(key);
      (void)*table.add(registration(3));
    });
    world.run();
  };
}

}  // namespace

std::vector<NamedScenario> table_scenarios() {
  using What = Withdrawal::What;
  const Setting setting{.deviations = 2, .random_runs = 2000};
  const Setting deeper{.deviations = 3};
  const Setting killed{.deviations = 1, .kills = true};
  const Setting scribbled{.deviations = 0, .scribbles = true};
  return {
      {"an entry that changes", entry_that_changes(), deeper},
      {"deregistration", withdrawal({What::kKey}), setting},
      {"deregistration without membarrier", withdrawal({What::kKey, false}), setting},
      {"close", withdrawal({What::kGate}), deeper},
      {"one copy, deregistration", withdrawal({.what = What::kKey, .one_copy = true}), deeper},
      {"one copy, the end of its connection, deregistration",
       withdrawal({.what = What::kBoth, .one_copy = true}), deeper},
      {"close without membarrier", withdrawal({What::kGate, false}), setting},
      {"window", withdrawal({What::kWindow}), setting},
      {"one copy, window", withdrawal({.what = What::kWindow, .one_copy = true}), deeper},
      {"one copy, window, without membarrier",
       withdrawal({.what = What::kWindow, .heavy_fence_exists = false, .one_copy = true}), deeper},
      {"death in a copy, window", withdrawal({What::kWindow}), killed},
      {"scribbled window", withdrawal({.what = What::kWindow, .scribbled = true}), scribbled},
      {"death in a copy, deregistration", withdrawal({What::kKey}), killed},
      {"death in a copy, the end of a connection", withdrawal({What::kBoth}), killed},
      {"death in a copy, close", withdrawal({What::kGate}), killed},
      {"scribbled table", withdrawal({.what = What::kKey, .scribbled = true}), scribbled},
      {"scribbled gate", withdrawal({.what = What::kGate, .scribbled = true}), scribbled},
  };
}

}  // namespace braid::explore
