// NBD's handshake with a client whose bytes are the input, cut anywhere: what is answered has the
// shape that the protocol demands, memory is bounded, and how the bytes are cut changes nothing.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "bnbd/frontend/nbd_handshake.h"
#include "tests/fuzz/numbers.h"
#include "tests/fuzz/reached.h"
#include "tests/fuzz/two_party.h"

namespace {

using braid::bnbd::NbdHandshake;
using braid::bnbd::NbdOffer;
using braid::bnbd::NbdOffers;
using braid::fuzz::Numbers;
using braid::fuzz::require;
using State = NbdHandshake::State;
namespace base = braid::base;

braid::fuzz::Reached granted("an export is had by GO"), refused("an option is refused"),
    named("an export is had by EXPORT_NAME"), cut_off("who breaks the rules is cut off"),
    left("a client takes its leave"), structured("structured replies are agreed on"),
    skipped("an option that is too long is skipped");

constexpr size_t kGreetingBytes = 18;
// A list of three exports, or four pieces of information, with names and words.
constexpr size_t kOutputMax = 4096;

NbdOffers offers() {
  NbdOffers now;
  now.default_name = "a";
  now.all.resize(3);
  std::vector<NbdOffer>& all = now.all;
  all[0].name = "a";
  all[0].description = "the first";
  all[1].name = "disk";
  all[2].name = "full";
  all[2].refusal = "it is full";
  for (NbdOffer& offer : all) offer.size_bytes = 1 << 20;
  return now;
}

/// All that a client that sends these bytes hears, and how it ends.
struct Talk {
  std::vector<std::byte> heard;
  State state = State::kTalking;
  std::string name;
  bool structured = false;
  std::vector<std::byte> rest;
};

Talk talk(std::span<const std::byte> bytes, Numbers cuts, bool whole) {
  NbdHandshake handshake(offers);
  Talk talk;
  while (true) {
    const auto output = handshake.output();
    require(output.size() <= kOutputMax, "what is to be sent is bounded");
    if (!output.empty()) {
      const size_t part = whole ? output.size() : 1 + cuts.next<uint8_t>() % output.size();
      talk.heard.insert(talk.heard.end(), output.begin(), output.begin() + static_cast<long>(part));
      handshake.sent(part);
      continue;
    }
    if (handshake.state() != State::kTalking || bytes.empty()) break;
    const size_t most = std::min(bytes.size(), NbdHandshake::kInputMax);
    const size_t part = whole ? most : std::min<size_t>(most, 1 + cuts.next<uint8_t>());
    handshake.received(bytes.first(part));
    bytes = bytes.subspan(part);
  }
  talk.state = handshake.state();
  if (talk.state == State::kGranted) {
    talk.name = handshake.export_name();
    talk.structured = handshake.structured();
    talk.rest = handshake.rest();
    talk.rest.insert(talk.rest.end(), bytes.begin(), bytes.end());
  }
  left.count(talk.state == State::kEnded && handshake.reason().empty());
  cut_off.count(talk.state == State::kEnded && !handshake.reason().empty());
  return talk;
}

/// Each reply is whole, to its end; but the answer of EXPORT_NAME, which is the last.
void check_shape(const Talk& talk) {
  std::span<const std::byte> heard(talk.heard);
  heard = heard.subspan(kGreetingBytes);
  while (heard.size() >= 20) {
    base::be64 magic;
    base::be32 type, length;
    std::memcpy(&magic, heard.data(), sizeof(magic));
    std::memcpy(&type, heard.data() + 12, sizeof(type));
    std::memcpy(&length, heard.data() + 16, sizeof(length));
    if (magic != 0x0003e889045565a9) break;
    require(heard.size() >= 20 + size_t{length}, "a reply is whole");
    refused.count(type >= 1U << 31);
    skipped.count(type == (1U << 31) + 9);
    heard = heard.subspan(20 + size_t{length});
  }
  if (heard.empty()) {
    granted.count(talk.state == State::kGranted);
    return;
  }
  require(talk.state == State::kGranted && (heard.size() == 10 || heard.size() == 134),
          "only EXPORT_NAME is answered otherwise");
  named.count();
}

/// Options that are well formed, as most bytes are not.
std::vector<std::byte> stream_of(Numbers& numbers) {
  std::vector<std::byte> stream;
  braid::fuzz::append(stream, base::be32(numbers.odd(8) ? numbers.next<uint32_t>() : 3));
  static const std::string kNames[] = {"", "a", "disk", "full", "none", std::string(5000, 'x')};
  for (unsigned options = 0; options < 80 && !numbers.empty(); ++options) {
    const uint32_t number = numbers.below(12);
    std::vector<std::byte> data;
    const std::string& name = kNames[numbers.below(6)];
    const auto text = std::as_bytes(std::span(name));
    if (number == 1) data.assign(text.begin(), text.end());
    if (number == 6 || number == 7) {
      braid::fuzz::append(data, base::be32(static_cast<uint32_t>(name.size())));
      data.insert(data.end(), text.begin(), text.end());
      const uint16_t count = numbers.below(5);
      braid::fuzz::append(data, base::be16(count));
      for (uint16_t i = 0; i < count; ++i) braid::fuzz::append(data, base::be16(numbers.below(6)));
    }
    if (numbers.odd(16)) data.resize(numbers.next<uint16_t>());
    data = numbers.bent(data);
    std::vector<std::byte> option;
    braid::fuzz::append(option, base::be64(0x49484156454f5054));
    braid::fuzz::append(option, base::be32(number));
    braid::fuzz::append(option, base::be32(static_cast<uint32_t>(data.size())));
    if (numbers.odd(16)) option = numbers.bent(option);
    braid::fuzz::append(stream, option);
    braid::fuzz::append(stream, data);
  }
  return stream;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  Numbers numbers({data, size_bytes});
  const bool raw = numbers.odd(4);
  const std::vector<std::byte> stream = raw ? numbers.take(4096) : stream_of(numbers);
  const Talk whole = talk(stream, numbers, true);
  const Talk cut = talk(stream, Numbers({data, size_bytes}), false);
  require(whole.heard == cut.heard && whole.state == cut.state && whole.name == cut.name &&
              whole.structured == cut.structured && whole.rest == cut.rest,
          "how the bytes are cut changes nothing");
  check_shape(whole);
  structured.count(whole.structured);
  return 0;
}
