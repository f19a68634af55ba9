#include "bnbd/frontend/nbd_handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/endian.h"

namespace braid::bnbd {

using base::be16;
using base::be32;
using base::be64;

namespace {

constexpr uint64_t kMagic = 0x4e42444d41474943;        // "NBDMAGIC"
constexpr uint64_t kOptionMagic = 0x49484156454f5054;  // "IHAVEOPT"
constexpr uint64_t kReplyMagic = 0x0003e889045565a9;

constexpr uint16_t kFixedNewstyle = 1 << 0;  // server's and client's bits alike
constexpr uint16_t kNoZeroes = 1 << 1;

enum Option : uint32_t {
  kExportName = 1,
  kAbort = 2,
  kList = 3,
  kStartTls = 5,
  kInfo = 6,
  kGo = 7,
  kStructuredReply = 8,
};

enum Reply : uint32_t {
  kAck = 1,
  kServer = 2,
  kInfoReply = 3,
  kUnsupported = (1U << 31) + 1,
  kPolicy = (1U << 31) + 2,
  kInvalid = (1U << 31) + 3,
  kUnknown = (1U << 31) + 6,
  kShutdown = (1U << 31) + 7,
  kTooBig = (1U << 31) + 9,
};

enum Info : uint16_t { kInfoExport = 0, kInfoName = 1, kInfoDescription = 2, kInfoBlockSize = 3 };

// A name, its length, and as many information requests as anybody could want.
constexpr size_t kDataMax = kNbdNameMax + 2048;
// Longer ones are not skipped but end the connection.
constexpr size_t kSkipMax = 1 << 20;
constexpr unsigned kOptionsMax = 64;
constexpr size_t kWordsMax = 1000;
constexpr size_t kZeroesOfExportName = 124;
constexpr const char* kEndingText = "this server is ending, and lets nobody in any more";

struct OptionHeader {
  be64 magic;
  be32 option;
  be32 length_bytes;
};
static_assert(sizeof(OptionHeader) == 16 && alignof(OptionHeader) == 1);

struct ReplyHeader {
  be64 magic;
  be32 option;
  be32 type;
  be32 length_bytes;
};
static_assert(sizeof(ReplyHeader) == 20 && alignof(ReplyHeader) == 1);

template <typename T>
void put(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}
void put_text(std::vector<std::byte>& to, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  to.insert(to.end(), bytes.begin(), bytes.end());
}
/// The first bytes; there are so many.
template <typename T>
T get(std::span<const std::byte> from) {
  T value;
  std::memcpy(&value, from.data(), sizeof(value));
  return value;
}
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// What a client typed, for a line of words: no control characters, not for ever.
std::string shown(const std::string& name) {
  std::string text = name.substr(0, 64);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

/// The default one for an empty name; null: it is not there.
const NbdOffer* find(const NbdOffers& offers, const std::string& asked) {
  const std::vector<NbdOffer>& all = offers.all;
  const std::string& name = asked.empty() ? offers.default_name : asked;
  if (name.empty()) return all.empty() ? nullptr : &all.front();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const NbdOffer& offer) { return offer.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string unknown_text(const NbdOffers& offers, const std::string& name) {
  const bool wants_default = name.empty() && !offers.default_name.empty();
  if (offers.all.empty() && !wants_default) return "nothing is exported here just now";
  std::string missing = fmt::format("there is no export \"{}\"", shown(name));
  if (wants_default) {
    missing = fmt::format("\"{}\", which a client gets that names no export, is not there just now",
                          shown(offers.default_name));
  }
  if (offers.all.empty()) return missing + ", and nothing else is";
  std::string there;
  for (const NbdOffer& offer : offers.all) {
    if (there.size() > kWordsMax - 200) {
      there += ", ...";
      break;
    }
    there += fmt::format("{}\"{}\"", there.empty() ? "" : ", ", shown(offer.name));
  }
  return fmt::format("{}; there {}: {}", missing, offers.all.size() == 1 ? "is" : "are", there);
}

}  // namespace

NbdHandshake::NbdHandshake(Offers offers) : offers_(std::move(offers)) {
  put(output_, be64(kMagic));
  put(output_, be64(kOptionMagic));
  put(output_, be16(kFixedNewstyle | kNoZeroes));
}

void NbdHandshake::sent(size_t bytes) {
  BRAID_ASSERT(bytes <= output().size());
  sent_bytes_ += bytes;
  if (sent_bytes_ < output_.size()) return;
  output_.clear();
  sent_bytes_ = 0;
  // What came with the option that was answered now.
  while (wants_input() && step()) {
  }
}

void NbdHandshake::received(std::span<const std::byte> bytes) {
  BRAID_ASSERT(wants_input() && bytes.size() <= kInputMax);
  input_.insert(input_.end(), bytes.begin(), bytes.end());
  while (wants_input() && step()) {
  }
}

/// One step; false: more bytes are needed for it.
bool NbdHandshake::step() {
  if (skipping_bytes_ > 0) {
    const size_t skipped = std::min(skipping_bytes_, input_.size());
    input_.erase(input_.begin(), input_.begin() + static_cast<ptrdiff_t>(skipped));
    skipping_bytes_ -= skipped;
    return skipped > 0;
  }
  return has_flags_ ? take_option() : take_flags();
}

bool NbdHandshake::take_flags() {
  if (input_.size() < sizeof(be32)) return false;
  const uint32_t flags = get<be32>(input_);
  input_.erase(input_.begin(), input_.begin() + sizeof(be32));
  has_flags_ = true;
  fixed_ = (flags & kFixedNewstyle) != 0;
  no_zeroes_ = (flags & kNoZeroes) != 0;
  if ((flags & ~uint32_t{kFixedNewstyle | kNoZeroes}) != 0) {
    end(fmt::format("unknown client flags {:#x}", flags));
  }
  return true;
}

bool NbdHandshake::take_option() {
  if (input_.size() < sizeof(OptionHeader)) return false;
  const auto header = get<OptionHeader>(input_);
  if (header.magic != kOptionMagic) return end("it does not speak NBD's handshake"), true;
  const size_t length = header.length_bytes;
  const bool too_long = length > kDataMax;
  if (!too_long && input_.size() < sizeof(header) + length) return false;
  if (++options_ > kOptionsMax) return end("it asks for options without end"), true;
  if (too_long) {
    if (length > kSkipMax || !fixed_)
      return end(fmt::format("an option of {} bytes", length)), true;
    input_.erase(input_.begin(), input_.begin() + sizeof(header));
    skipping_bytes_ = length;
    refuse(header.option, kTooBig, fmt::format("{} bytes are more than {}", length, kDataMax));
    return true;
  }
  const auto data_begin = input_.begin() + sizeof(header);
  const std::vector<std::byte> data(data_begin, data_begin + static_cast<ptrdiff_t>(length));
  input_.erase(input_.begin(), data_begin + static_cast<ptrdiff_t>(length));
  option(header.option, data);
  return true;
}

void NbdHandshake::option(uint32_t number, Data data) {
  if (number == kExportName) return export_name_option(data);
  if (!fixed_) return end("it is too old: only EXPORT_NAME is for clients without fixed newstyle");
  switch (number) {
    case kAbort:
      reply(number, kAck);
      return end({});
    case kList:
      return list_option(data);
    case kInfo:
    case kGo:
      return go_option(number, data);
    case kStructuredReply:
      if (!data.empty()) return refuse(number, kInvalid, "STRUCTURED_REPLY has no data");
      structured_ = true;
      return reply(number, kAck);
    case kStartTls:
      return refuse(number, kUnsupported,
                    "there is no TLS here: use a unix socket, or a network that you trust");
    default:
      return refuse(number, kUnsupported, fmt::format("option {} is not known here", number));
  }
}

/// The answer has no place for errors: who asks for what there is not is cut off.
void NbdHandshake::export_name_option(Data data) {
  const NbdOffers offers = offers_();
  if (offers.ending) return end(kEndingText);
  const std::string name = text_of(data);
  const NbdOffer* const offer = find(offers, name);
  if (offer == nullptr) return end(unknown_text(offers, name));
  if (!offer->refusal.empty()) return end(offer->refusal);
  put(output_, be64(offer->size_bytes));
  put(output_, be16(flags_of(*offer)));
  if (!no_zeroes_) output_.resize(output_.size() + kZeroesOfExportName);
  grant(*offer);
}

void NbdHandshake::list_option(Data data) {
  if (!data.empty()) return refuse(kList, kInvalid, "LIST has no data");
  const NbdOffers offers = offers_();
  for (const NbdOffer& offer : offers.all) {
    std::vector<std::byte> entry;
    put(entry, be32(static_cast<uint32_t>(offer.name.size())));
    put_text(entry, offer.name);
    put_text(entry, offer.description);
    reply(kList, kServer, entry);
  }
  reply(kList, kAck);
}

void NbdHandshake::go_option(uint32_t number, Data data) {
  const char* const shape = "want a name's length, the name, a count, and so many requests";
  if (data.size() < sizeof(be32)) return refuse(number, kInvalid, shape);
  const size_t name_bytes = get<be32>(data);
  const Data behind = data.subspan(sizeof(be32));
  if (name_bytes > kNbdNameMax || behind.size() < name_bytes + sizeof(be16)) {
    return refuse(number, kInvalid, shape);
  }
  const std::string name = text_of(behind.first(name_bytes));
  const size_t count = get<be16>(behind.subspan(name_bytes));
  const Data requests = behind.subspan(name_bytes + sizeof(be16));
  if (requests.size() != count * sizeof(be16)) return refuse(number, kInvalid, shape);

  const NbdOffers offers = offers_();
  if (offers.ending) return refuse(number, kShutdown, kEndingText);
  const NbdOffer* const offer = find(offers, name);
  if (offer == nullptr) return refuse(number, kUnknown, unknown_text(offers, name));
  if (number == kGo && !offer->refusal.empty()) return refuse(number, kPolicy, offer->refusal);
  send_info(number, *offer, requests, name.empty());
  reply(number, kAck);
  if (number == kGo) grant(*offer);
}

void NbdHandshake::send_info(uint32_t number, const NbdOffer& offer, Data requests,
                             bool default_name) {
  bool wants_name = default_name;  // that it has one is news
  bool wants_description = false;
  for (; !requests.empty(); requests = requests.subspan(sizeof(be16))) {
    const uint16_t wanted = get<be16>(requests);
    wants_name |= wanted == kInfoName;
    wants_description |= wanted == kInfoDescription;
  }
  const auto info = [&](Info type, auto... parts) {
    std::vector<std::byte> data;
    put(data, be16(type));
    (put(data, parts), ...);
    reply(number, kInfoReply, data);
  };
  const auto text = [&](Info type, const std::string& what) {
    std::vector<std::byte> data;
    put(data, be16(type));
    put_text(data, what);
    reply(number, kInfoReply, data);
  };
  info(kInfoExport, be64(offer.size_bytes), be16(flags_of(offer)));
  // Also unasked: who does not know the limits breaks them.
  info(kInfoBlockSize, be32(offer.block_min_bytes), be32(offer.block_preferred_bytes),
       be32(offer.transfer_max_bytes));
  if (wants_name) text(kInfoName, offer.name);
  if (wants_description && !offer.description.empty()) text(kInfoDescription, offer.description);
}

void NbdHandshake::grant(const NbdOffer& offer) {
  export_name_ = offer.name;
  state_ = State::kGranted;
}

void NbdHandshake::end(std::string reason) {
  reason_ = std::move(reason);
  state_ = State::kEnded;
}

void NbdHandshake::reply(uint32_t option, uint32_t type, Data data) {
  ReplyHeader header;
  header.magic = kReplyMagic;
  header.option = option;
  header.type = type;
  header.length_bytes = static_cast<uint32_t>(data.size());
  put(output_, header);
  output_.insert(output_.end(), data.begin(), data.end());
}

void NbdHandshake::refuse(uint32_t option, uint32_t type, std::string_view words) {
  reply(option, type, std::as_bytes(std::span(words.substr(0, kWordsMax))));
}

}  // namespace braid::bnbd
