// An established connection of the TCP wire fed by a hostile peer, while its owner posts, sleeps
// and deregisters. The QP behind it (fake_test.h) aborts when the stream breaks a rule that the
// core relies on; the sanitizer sees what lands outside of memory.
//
// The input is steps. A step's first byte says what happens; frames are made from few bytes each,
// so that most of them pass the first checks, with every field the fuzzer's to change.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "base/linux_host.h"
#include "tests/fuzz/numbers.h"
#include "tests/fuzz/reached.h"
#include "vhca/soft/tcp/fake_test.h"

namespace {

namespace tcp = braid::vhca::soft::tcp;
using braid::fuzz::Numbers;
using braid::vhca::WireBudget;
using tcp::fake::Party;

constexpr uint64_t kFedMax = 1 << 20;

braid::fuzz::Reached executed("a request of the peer is executed"),
    answered("a request of ours is answered"), not_received("the peer has no receive"),
    gone("memory goes under a request of ours"), broken("the peer breaks the stream"),
    port_word("the peer tells of its ports"), claimed("a word is claimed"),
    waited("what has come waits for a turn"), last_words("last words come after a send failed");

void count(const Party& party) {
  executed.count(!party.end.executed.empty());
  answered.count(party.end.answered > 0);
  not_received.count(party.end.not_received > 0);
  gone.count(party.end.gone != UINT64_MAX);
  broken.count(party.end.broken);
  port_word.count(party.events.port_words > 0);
  claimed.count(party.events.claimed_words > 0);
  last_words.count(party.end.disconnected && party.socket.send_error != braid::base::Errc::kOk);
}

/// A frame that is right but for what the input changes.
void feed_frame(Party& party, Numbers& in) {
  const auto kind = static_cast<tcp::FrameKind>(in.next<uint8_t>());
  const auto opcode = static_cast<ibv_wr_opcode>(in.next<uint8_t>() % 8);
  const uint32_t length = in.next<uint16_t>() * 2u;
  const uint64_t sequence = in.next<uint8_t>();
  tcp::FrameHeader header = kind == tcp::FrameKind::kRequest
                                ? party.request(opcode, sequence, length)
                                : party.header(kind, sequence);
  if (kind == tcp::FrameKind::kResponse) header.length = length;
  if (kind == tcp::FrameKind::kError || kind == tcp::FrameKind::kPort) {
    header.status = in.next<uint8_t>();
  }
  header.acknowledged = in.next<uint8_t>();
  const uint8_t spoilt = in.next<uint8_t>();
  if (spoilt < sizeof header) {
    const uint64_t told = header.length;
    reinterpret_cast<uint8_t*>(&header)[spoilt] ^= in.next<uint8_t>();
    if (header.length != told && header.length > kFedMax) header.length = told;
  }
  if (header.length <= kFedMax && party.socket.incoming.size() <= kFedMax) party.feed(header);
}

void give_turn(WireBudget& budget, uint64_t bytes) {
  budget.give(bytes);
  budget.resume();
}

void step(Party& party, WireBudget& budget, Numbers& in) {
  switch (in.next<uint8_t>() % 10) {
    case 0:
    case 1:
    case 2:
      return feed_frame(party, in);
    case 3:
      return party.run();
    case 4:
      party.socket.receive_max = in.next<uint16_t>() + 1u;
      return;
    case 5:
      party.socket.send_room = in.next<uint16_t>();
      return;
    case 6: {
      const auto chosen = in.next<uint8_t>();
      if (chosen >= 0xf0) {
        party.end.own_registered = !party.end.own_registered;
        return;
      }
      const auto opcode = static_cast<ibv_wr_opcode>(chosen % 5);
      const uint32_t length = in.next<uint16_t>();
      // As the core: nothing once it failed.
      if (!party.end.closed) (void)party.post(opcode, std::min<uint32_t>(length, 60'000));
      return;
    }
    case 7:
      party.end.registered = !party.end.registered;
      return;
    case 8:
      party.end.receives = in.next<uint8_t>();
      party.end.claimed_looks = party.end.receives / 64;
      return;
    case 9: {
      const auto chosen = in.next<uint8_t>();
      if (chosen % 4 == 0) return party.end.fail();
      if (chosen >= 0xf8) {  // the peer has closed
        party.socket.send_error = braid::base::Errc::kDisconnected;
        return;
      }
      if (chosen >= 0xf0) return give_turn(budget, in.next<uint16_t>());
      party.stream.acknowledgement_due();
      return party.stream.run(&party.end, /*woken=*/false);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<braid::base::Host> kHost = [] {
    braid::base::LinuxHostOptions options;
    options.log_sink = braid::base::make_null_sink();
    return std::move(*braid::base::create_linux_host(options));
  }();
  Numbers in(std::span(data, size));
  const auto how = in.next<uint8_t>();
  const auto port = how % 3 == 0 ? std::make_shared<braid::vhca::soft::Port>() : nullptr;
  const auto budget = std::make_shared<WireBudget>();
  Party party(*kHost, how % 4 == 0, port);
  if (how % 5 == 0) {
    budget->give(8192);
    party.stream.share_budget(budget);
  }
  while (!in.empty()) step(party, *budget, in);
  party.run();
  waited.count(party.stream.waits_for_turn());
  party.stream.leave();
  party.stream.run(nullptr, /*woken=*/true);
  count(party);
  return 0;
}
