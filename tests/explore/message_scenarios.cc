// Messages through a ring, polled and asleep: none lost, doubled, reordered or torn; no wake-up
// lost.
#include <algorithm>

#include "tests/explore/scenarios.h"
#include "tests/explore/segment.h"

namespace braid::explore {
namespace {

using inhost::ArmMode;
using soft::Arrival;
using soft::Next;
using Room = inhost::OutboundRing::Room;

/// Message n of a run: an RDMA write's immediate, a SEND in the slot, one in the payload area.
struct Message {
  uint32_t bytes;  // 0: a write with immediate
  uint32_t imm;
};

struct Traffic {
  std::vector<Message> messages;
  unsigned receives = 1;  // posted ahead
  unsigned warm_up = 0;   // messages before the world begins, so that the ring wraps in it
  bool sleeps = false;
  bool heavy_fence_exists = true;
  bool scribbled = false;  // rules may be broken, and are found so; bounds hold
  // The receives are an SRQ's: `receives` are there at first, one more after each message and each
  // refusal. `sleeps` is then about the sender's wait for an answer, too.
  bool shared = false;
};

std::byte pattern(uint32_t imm, uint32_t at) {
  return static_cast<std::byte>(imm * 31 + at * 7 + 1);
}

/// Both ends of one direction.
class Pair {
 public:
  Pair(World& world, const Traffic& traffic)
      : world_(world),
        traffic_(traffic),
        segment_(world, traffic.heavy_fence_exists, traffic.shared),
        back_(world, traffic.heavy_fence_exists),
        available_(traffic.shared ? traffic.receives : 0) {
    for (unsigned i = 0; i < traffic.warm_up; ++i) {
      segment_.inbound.post(128, true);
      (void)push({.bytes = 64, .imm = i});
      Arrival arrival;
      (void)segment_.inbound.next(arrival);
      segment_.inbound.pop();
    }
    for (unsigned i = 0; i < std::max(traffic.receives, 1u) && !traffic.shared; ++i) {
      post_receive();
    }
    world.add_party([this] { send_all(); });
    world.add_party([this] { receive_all(); });
  }

  void judge() {
    if (traffic_.scribbled) return;
    const bool killed = world_.dead(0) || world_.dead(1);
    if (!killed && received_ != traffic_.messages.size()) {
      world_.violate(fmt::format("{} of {} messages arrived, and nobody goes on", received_,
                                 traffic_.messages.size()));
    }
    if (world_.dead(0) && received_ < pushed_) {
      world_.violate(
          fmt::format("the sender died after {} messages; {} arrived", pushed_, received_));
    }
  }

 private:
  /// Each receive has a size of its own, so that a stale length shows.
  uint32_t capacity(uint64_t receive) const {
    if (receive >= traffic_.messages.size()) return 128;
    return std::max(traffic_.messages[receive].bytes, 1u);
  }
  void post_receive() { segment_.inbound.post(capacity(posted_++), true); }

  Room push(const Message& message) {
    if (message.bytes == 0) {
      const Room room = segment_.outbound.ready();
      if (room == Room::kReady) segment_.outbound.push_write_imm(message.imm, 0, 8, false);
      return room;
    }
    if (!segment_.outbound.in_fragments()) {
      const Room room = segment_.outbound.ready();
      if (room != Room::kReady) return room;
      const auto receive = segment_.outbound.next_receive();
      if (message.bytes > receive.capacity_bytes || !receive.usable) {
        if (traffic_.scribbled) return Room::kBroken;
        world_.fail(fmt::format("a receive of {} bytes is seen where {} were posted",
                                receive.capacity_bytes, message.bytes));
      }
    }
    for (uint32_t i = 0; i < message.bytes; ++i) data_[i] = pattern(message.imm, i);
    const soft::Piece piece{.address = data_, .length = message.bytes};
    soft::Request request;
    request.imm = message.imm;
    request.length = message.bytes;
    request.pieces = {&piece, 1};
    return segment_.outbound.push_send(request, inhost::kSlotHasImm);
  }

  void send_all() {
    for (const Message& message : traffic_.messages) {
      for (;;) {
        const uint64_t seen = world_.changes();
        const Room room = push(message);
        if (room == Room::kReady) break;
        if (room == Room::kBroken && traffic_.scribbled) return;
        if (room == Room::kBroken) world_.fail("the receiver is found to break rules");
        const bool moves_first = segment_.outbound.take_asked() || segment_.outbound.in_fragments();
        if (moves_first && segment_.outbound.peer_sleeps()) {
          world_.fence();  // as below
          event_ = true;
        }
        if (room == Room::kNoReceive && traffic_.shared) continue;  // the timer is over
        if (traffic_.shared && traffic_.sleeps) {
          if (!sleep_until_answered()) return;
          continue;
        }
        if (world_.dead(1) || !world_.wait_for_change(seen)) return;
      }
      ++pushed_;
      if (segment_.outbound.must_signal(false)) {
        world_.fence();  // the system call takes a lock
        event_ = true;
      }
    }
  }

  /// False: there will be no answer.
  bool sleep_until_answered() {
    back_.inbound.arm_sends(true);
    world_.heavy_fence();
    if (!world_.recheck || segment_.outbound.waits_for_answer()) {
      const auto woken = [this] { return send_event_ || world_.dead(1); };
      if (world_.dead(1) || !world_.wait_until(woken)) return false;
      send_event_ = false;
    }
    back_.inbound.arm_sends(false);
    return true;
  }

  void answer_wish() {
    if (available_ > 0) {
      --available_;
      post_receive();
    } else {
      ++available_;
      segment_.inbound.refuse_wish();
    }
    if (!back_.outbound.peer_waits_asleep()) return;
    world_.fence();  // the system call takes a lock
    send_event_ = true;
  }

  void receive_all() {
    while (received_ < traffic_.messages.size()) {
      const uint64_t seen = world_.changes();
      if (take()) continue;
      if (broken_) return;
      if (!traffic_.sleeps) {
        // What the peer sent before it died has been seen when nothing is left after.
        const bool last = world_.dead(0);
        if (take()) continue;
        if (last || !world_.wait_for_change(seen)) return;
        continue;
      }
      segment_.inbound.arm(ArmMode::kAny);
      world_.heavy_fence();
      if (world_.recheck && take()) {
        segment_.inbound.arm(ArmMode::kPolls);
        continue;
      }
      if (!sleep_until_taken()) return;
      segment_.inbound.arm(ArmMode::kPolls);
    }
  }

  /// As a completion queue does: an event for which nothing is found leaves it armed as it is.
  bool sleep_until_taken() {
    for (;;) {
      const bool last = world_.dead(0);
      if (last) return take();
      if (!world_.wait_until([this] { return event_ || world_.dead(0); })) return false;
      event_ = false;
      if (take()) return true;
    }
  }

  bool take() {
    Arrival arrival;
    switch (segment_.inbound.next(arrival)) {
      case Next::kNone:
        return false;
      case Next::kArrival:
        break;
      case Next::kWish:
        if (!traffic_.shared) world_.fail("a wish that nobody has");
        answer_wish();
        return true;
      default:
        if (traffic_.scribbled) {
          broken_ = true;
          return false;
        }
        world_.fail(
            fmt::format("the sender is found to break rules: {}", segment_.inbound.broken_rule()));
    }
    if (traffic_.scribbled) {
      check_bounds(arrival);
    } else {
      check(arrival);
    }
    segment_.inbound.pop();
    ++received_;
    if (traffic_.shared) {
      ++available_;
    } else if (posted_ < traffic_.messages.size())
      post_receive();
    return true;
  }

  void check(const Arrival& arrival) {
    if (received_ >= traffic_.messages.size()) world_.fail("a message nobody sent");
    const Message& expected = traffic_.messages[received_];
    if (arrival.imm != expected.imm) {
      world_.fail(fmt::format("message {} carries {} where {} was sent", received_, arrival.imm,
                              expected.imm));
    }
    if (expected.bytes == 0) return;
    world_.step();  // time passes before the payload is read: its place must not be used again
    if (arrival.payload.size() != expected.bytes) world_.fail("a message of another length");
    for (uint32_t i = 0; i < expected.bytes; ++i) {
      if (arrival.payload[i] != pattern(expected.imm, i)) {
        world_.fail(fmt::format("byte {} of message {} is not what was sent", i, received_));
      }
    }
  }

  /// Whatever the words say: the payload lies where a payload may, and a receive can hold it.
  void check_bounds(const Arrival& arrival) {
    if (arrival.opcode != IBV_WC_RECV) return;
    const std::span<const std::byte> payload = arrival.payload;
    if (payload.size() != arrival.length) world_.fail("a payload of another length than reported");
    const bool in_slot = payload.size() <= inhost::kSlotPayloadBytes;
    if (!in_slot && payload.size() > capacity(received_)) {
      world_.fail(fmt::format("{} bytes for a receive of {}", payload.size(), capacity(received_)));
    }
    if (in_slot && !segment_.holds(payload)) world_.fail("a payload outside of the segment");
    std::byte sum{};
    for (const std::byte byte : payload) sum ^= byte;  // the address sanitizer looks, too
    data_[0] = sum;
  }

  World& world_;
  const Traffic traffic_;
  Segment<0> segment_;
  Segment<1> back_;  // the other direction: whether the sender sleeps
  unsigned available_;
  std::byte data_[4096];
  bool event_ = false;
  bool send_event_ = false;
  bool broken_ = false;
  size_t posted_ = 0, pushed_ = 0, received_ = 0;
};

Scenario messages(const Traffic& traffic) {
  return [traffic](World& world) {
    Pair pair(world, traffic);
    world.run();
    pair.judge();
  };
}

}  // namespace

std::vector<NamedScenario> message_scenarios() {
  const std::vector<Message> two{{0, 11}, {8, 12}};
  const std::vector<Message> three{{8, 11}, {100, 12}, {0, 13}};
  std::vector<Message> many;
  for (uint32_t i = 0; i < 40; ++i) many.push_back({i % 4 == 0 ? 0 : i * 97 % 1500, 100 + i});
  const std::vector<Message> one{{8, 11}};
  Setting smallest{.deviations = 4};
  Setting small{.deviations = 3};
  Setting killed{.deviations = 1, .kills = true};
  Setting scribbled{.deviations = 0, .scribbles = true};
  Setting long_runs{.deviations = 0, .random_runs = 300};
  return {
      {"one message", messages({.messages = one}), smallest},
      {"one message, asleep", messages({.messages = one, .sleeps = true}), smallest},
      {"two messages, one receive", messages({.messages = two}), small},
      {"three messages, two receives",
       messages({.messages = three, .receives = 2}),
       {.deviations = 2}},
      {"messages where the ring wraps",
       messages({.messages = three, .receives = 2, .warm_up = 31}),
       {.deviations = 2}},
      {"a sleeping receiver", messages({.messages = two, .sleeps = true}), {.deviations = 3}},
      {"a sleeping receiver without membarrier",
       messages({.messages = two, .sleeps = true, .heavy_fence_exists = false}),
       {.deviations = 2}},
      {"death among messages", messages({.messages = three, .receives = 2}), killed},
      {"death beside a sleeper", messages({.messages = two, .sleeps = true}), killed},
      {"scribbled words", messages({.messages = three, .receives = 2, .scribbled = true}),
       scribbled},
      {"a wish for a receive", messages({.messages = one, .shared = true}), small},
      {"a wish that is refused", messages({.messages = one, .receives = 0, .shared = true}), small},
      {"wishes for receives",
       messages({.messages = three, .receives = 0, .shared = true}),
       {.deviations = 2}},
      {"wishes, both sides sleeping", messages({.messages = one, .sleeps = true, .shared = true}),
       small},
      {"wishes refused, both sides sleeping",
       messages({.messages = two, .receives = 0, .sleeps = true, .shared = true}),
       {.deviations = 2}},
      {"death among wishes", messages({.messages = two, .receives = 0, .shared = true}), killed},
      {"scribbled wishes",
       messages({.messages = two, .receives = 0, .scribbled = true, .shared = true}), scribbled},
      {"forty wishes", messages({.messages = many, .receives = 0, .shared = true}), long_runs},
      {"forty wishes, both sides sleeping",
       messages({.messages = many, .receives = 0, .sleeps = true, .shared = true}), long_runs},
      {"forty messages, polled", messages({.messages = many, .receives = 3}), long_runs},
      {"forty messages, asleep", messages({.messages = many, .receives = 3, .sleeps = true}),
       long_runs},
  };
}

}  // namespace braid::explore
