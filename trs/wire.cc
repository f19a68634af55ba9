#include "trs/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "trs/imm.h"

namespace braid::trs::wire {
namespace {

using base::Errc;
using base::make_error;

/// Copies out of memory that a peer may be writing to: the compiler must not look there twice.
void copy_once(void* to, const std::byte* from, size_t length_bytes) {
  std::memcpy(to, from, length_bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

template <typename T>
base::Result<T> take(std::span<const std::byte> bytes, std::string_view what) {
  if (bytes.size() < sizeof(T)) {
    return make_error(Errc::kProtocol, "{} of {} bytes; it has {}", what, bytes.size(), sizeof(T));
  }
  T message;
  copy_once(&message, bytes.data(), sizeof(T));
  return message;
}

template <typename T>
base::Status check_magic(const T& message, std::string_view what) {
  if (message.magic != kMagic) {
    return make_error(Errc::kProtocol, "{} with magic {:#06x}; {:#06x} is right", what,
                      uint16_t{message.magic}, kMagic);
  }
  if (message.version >> 8 != kVersionMajor) {
    return make_error(Errc::kProtocol, "{} of protocol {}.{}; this is {}.{}", what,
                      message.version >> 8, message.version & 0xff, kVersionMajor, kVersionMinor);
  }
  return {};
}

template <typename T>
base::Status check_reserved(const T& message, std::span<const uint8_t> rest, bool rest_may_be_used,
                            std::string_view what) {
  const bool braid = message.braid_magic == kBraidMagic;
  const bool silent = message.braid_magic == 0 && message.braid_features == 0;
  const bool rest_zero =
      std::all_of(rest.begin(), rest.end(), [](uint8_t byte) { return byte == 0; });
  if ((braid && (rest_zero || rest_may_be_used)) || (silent && rest_zero)) return {};
  return make_error(Errc::kProtocol, "{} with reserved bytes that are not zero", what);
}

}  // namespace

std::string to_string(const Uuid& uuid) {
  return fmt::format("{:02x}", fmt::join(uuid.bytes, ""));
}

uint32_t usable_features(uint32_t offered) {
  const uint32_t needed = kFeaturePinnedPermits | kFeatureAdminPermits;
  if ((offered & needed) != needed) offered &= ~kFeatureSequenced;
  if ((offered & kFeatureSequenced) == 0) {
    offered &=
        ~(kFeatureAnswerSlots | kFeatureLentPermits | kFeatureCountedKeys | kFeatureKeptAnswers);
  }
  return offered;
}

uint32_t joined_epoch(const ConnReq& request) {
  return static_cast<uint32_t>(request.braid_joins[0]) |
         static_cast<uint32_t>(request.braid_joins[1]) << 8 |
         static_cast<uint32_t>(request.braid_joins[2]) << 16;
}

void set_joined_epoch(ConnReq& request, uint32_t epoch) {
  for (unsigned i = 0; i < 3; ++i) {
    request.braid_joins[i] = static_cast<uint8_t>(epoch >> 8 * i);
  }
}

namespace {

/// By code.
constexpr Errc kStatusCodes[] = {
    Errc::kOk,         Errc::kInvalid,  Errc::kNotFound,     Errc::kExists,     Errc::kBusy,
    Errc::kPermission, Errc::kReadOnly, Errc::kNotSupported, Errc::kOutOfRange, Errc::kNoMemory,
    Errc::kNoSpace,    Errc::kIo,       Errc::kTimedOut,     Errc::kCanceled,   Errc::kDisconnected,
    Errc::kRefused,    Errc::kProtocol, Errc::kStale,
};
constexpr uint32_t kStatusIo = 11;
static_assert(kStatusCodes[kStatusIo] == Errc::kIo);

}  // namespace

uint32_t status_code(Errc status) {
  const auto* const found = std::find(std::begin(kStatusCodes), std::end(kStatusCodes), status);
  const auto code = static_cast<uint32_t>(found - std::begin(kStatusCodes));
  return code < std::size(kStatusCodes) ? code : kStatusIo;
}

std::optional<Errc> status_of(uint32_t code) {
  if (code >= std::size(kStatusCodes)) return std::nullopt;
  return kStatusCodes[code];
}

base::Result<ConnReq> parse_conn_req(std::span<const std::byte> private_data) {
  const std::string_view what = "connect request";
  BRAID_TRY(const ConnReq req, take<ConnReq>(private_data, what));
  BRAID_CHECK(check_magic(req, what));
  const bool joins = (req.braid_features & kFeatureSequenced) != 0;
  BRAID_CHECK(check_reserved(req, req.braid_joins, joins, what));
  if (req.cid_num < 2 || req.cid_num > kConnectionsMax) {
    return make_error(Errc::kProtocol, "{} for {} connections; 2 to {} are right", what,
                      uint16_t{req.cid_num}, kConnectionsMax);
  }
  if (req.cid >= req.cid_num) {
    return make_error(Errc::kProtocol, "{} for connection {} of {}", what, uint16_t{req.cid},
                      uint16_t{req.cid_num});
  }
  if ((req.flags & ~kFirstConn) != 0) {
    return make_error(Errc::kProtocol, "{} with unknown flags {:#x}", what, req.flags);
  }
  return req;
}

base::Result<ConnRsp> parse_accept(std::span<const std::byte> private_data) {
  const std::string_view what = "connect answer";
  BRAID_TRY(const ConnRsp rsp, take<ConnRsp>(private_data, what));
  BRAID_CHECK(check_magic(rsp, what));
  BRAID_CHECK(check_reserved(rsp, rsp.reserved, false, what));
  const bool proves =
      rsp.braid_magic == kBraidMagic && (rsp.braid_features & kFeatureAuthentication) != 0;
  if (!proves && rsp.braid_proof != Uuid()) {
    return make_error(Errc::kProtocol, "{} with reserved bytes that are not zero", what);
  }
  if (rsp.error != 0) {
    return make_error(Errc::kProtocol, "{} that accepts with error {}", what,
                      static_cast<int16_t>(uint16_t{rsp.error}));
  }
  if ((rsp.flags & ~kNewRkey) != 0) {
    return make_error(Errc::kProtocol, "{} with unknown flags {:#x}", what, uint32_t{rsp.flags});
  }
  const uint64_t chunk_bytes = uint64_t{rsp.max_io_size} + rsp.max_hdr_size;
  if (rsp.queue_depth == 0 || rsp.max_io_size == 0 || chunk_bytes < kChunkBytesMin ||
      !std::has_single_bit(chunk_bytes)) {
    return make_error(Errc::kProtocol,
                      "{} with {} chunks of {} + {} bytes; chunks are a power of "
                      "two of at least {}",
                      what, uint16_t{rsp.queue_depth}, uint32_t{rsp.max_io_size},
                      uint32_t{rsp.max_hdr_size}, kChunkBytesMin);
  }
  if (rsp.max_hdr_size < kHeadersBytesMax) {
    return make_error(Errc::kProtocol,
                      "{} that leaves {} bytes behind the data for headers; they have up to {}",
                      what, uint32_t{rsp.max_hdr_size}, kHeadersBytesMax);
  }
  if (!ImmCodec::fits(rsp.queue_depth, chunk_bytes)) {
    return make_error(Errc::kProtocol, "{} with {} chunks of {} bytes, more than {} bits address",
                      what, uint16_t{rsp.queue_depth}, chunk_bytes, kImmPayloadBits);
  }
  return rsp;
}

base::Result<int> parse_reject(std::span<const std::byte> private_data) {
  const std::string_view what = "reject";
  BRAID_TRY(const ConnRsp rsp, take<ConnRsp>(private_data, what));
  if (rsp.magic != kMagic) {
    return make_error(Errc::kProtocol, "{} with magic {:#06x}; {:#06x} is right", what,
                      uint16_t{rsp.magic}, kMagic);
  }
  const int value = static_cast<int16_t>(uint16_t{rsp.error});
  return value < 0 ? -value : value;
}

base::Result<uint32_t> parse_rkey_rsp(std::span<const std::byte> message, uint32_t request_id) {
  const std::string_view what = "key answer";
  if (message.size() != sizeof(RkeyRsp)) {
    return make_error(Errc::kProtocol, "{} of {} bytes; it has {}", what, message.size(),
                      sizeof(RkeyRsp));
  }
  BRAID_TRY(const RkeyRsp rsp, take<RkeyRsp>(message, what));
  if (rsp.type != static_cast<uint16_t>(MessageType::kRkeyRsp)) {
    return make_error(Errc::kProtocol, "message of type {} where a {} is due", uint16_t{rsp.type},
                      what);
  }
  if (rsp.buf_id != request_id) {
    return make_error(Errc::kProtocol, "{} for chunk {} in the answer to request {}", what,
                      uint16_t{rsp.buf_id}, request_id);
  }
  return uint32_t{rsp.rkey};
}

base::Result<ParsedInfoReq> parse_info_req(std::span<const std::byte> message) {
  const std::string_view what = "info request";
  if (message.size() != sizeof(InfoReq)) {
    return make_error(Errc::kProtocol, "{} of {} bytes; it has {}", what, message.size(),
                      sizeof(InfoReq));
  }
  BRAID_TRY(const InfoReq req, take<InfoReq>(message, what));
  if (req.type != static_cast<uint16_t>(MessageType::kInfoReq)) {
    return make_error(Errc::kProtocol, "message of type {} where an {} is due", uint16_t{req.type},
                      what);
  }
  const auto end = std::find(req.session_name.begin(), req.session_name.end(), '\0');
  if (end == req.session_name.end()) {
    return make_error(Errc::kProtocol, "{} whose session name does not end", what);
  }
  std::string name(req.session_name.begin(), end);
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (name.empty() || !printable) {
    return make_error(Errc::kProtocol,
                      "{} with a session name that is empty or not of printable characters", what);
  }
  return ParsedInfoReq{std::move(name), req.braid_admin_permits, req.braid_answers_address,
                       req.braid_answers_key};
}

base::Result<uint32_t> parse_info_rsp(std::span<const std::byte> message, uint32_t chunk_bytes,
                                      std::span<ChunkRegion> chunks, size_t* regions) {
  const std::string_view what = "info answer";
  BRAID_TRY(const InfoRsp rsp, take<InfoRsp>(message, what));
  if (rsp.type != static_cast<uint16_t>(MessageType::kInfoRsp)) {
    return make_error(Errc::kProtocol, "message of type {} where an {} is due", uint16_t{rsp.type},
                      what);
  }
  const size_t count = rsp.sg_cnt;
  if (count == 0 || chunks.size() % count != 0) {
    return make_error(Errc::kProtocol, "{} with {} regions for {} chunks", what, count,
                      chunks.size());
  }
  if (message.size() != sizeof(InfoRsp) + count * sizeof(SgDescriptor)) {
    return make_error(Errc::kProtocol, "{} of {} bytes for {} regions", what, message.size(),
                      count);
  }
  const size_t per_region = chunks.size() / count;
  if (regions != nullptr) *regions = count;
  for (size_t i = 0; i < count; ++i) {
    SgDescriptor region;
    copy_once(&region, message.data() + sizeof(InfoRsp) + i * sizeof(region), sizeof(region));
    if (region.length != per_region * chunk_bytes || region.address > UINT64_MAX - region.length) {
      return make_error(Errc::kProtocol, "{} with a region of {} bytes at {:#x}; {} are right",
                        what, uint32_t{region.length}, uint64_t{region.address},
                        per_region * chunk_bytes);
    }
    for (size_t j = 0; j < per_region; ++j) {
      chunks[i * per_region + j] = {region.address + j * chunk_bytes, region.key};
    }
  }
  return uint32_t{rsp.braid_epoch};
}

base::Result<FenceMsg> parse_fence(std::span<const std::byte> message, MessageType type) {
  const std::string_view what = "message about a path";
  if (message.size() != sizeof(FenceMsg)) {
    return make_error(Errc::kProtocol, "{} of {} bytes; it has {}", what, message.size(),
                      sizeof(FenceMsg));
  }
  BRAID_TRY(const FenceMsg fence, take<FenceMsg>(message, what));
  if (fence.type != static_cast<uint16_t>(type)) {
    return make_error(Errc::kProtocol, "{} of type {} where {} is due", what, uint16_t{fence.type},
                      static_cast<uint16_t>(type));
  }
  return fence;
}

namespace {

/// Takes what follows the first four bytes. Null, or what is wrong.
const char* take_read(std::span<const std::byte> chunk, uint64_t at, ParsedRequest& out) {
  ReadMsg read;
  if (at + sizeof(read) > chunk.size()) return "message beyond the chunk's end";
  copy_once(&read, chunk.data() + at, sizeof(read));
  if ((read.flags & ~kNeedInvalidate) != 0) return "unknown flags in a read request";
  if (read.sg_cnt > 1) return "more than one target in a read request";
  out.direction = Direction::kRead;
  out.invalidate = (read.flags & kNeedInvalidate) != 0;
  if (read.sg_cnt == 0) {
    return out.invalidate ? "asks to invalidate a key that it does not give" : nullptr;
  }
  if (at + sizeof(read) + sizeof(SgDescriptor) > chunk.size()) {
    return "message beyond the chunk's end";
  }
  copy_once(&out.target, chunk.data() + at + sizeof(read), sizeof(out.target));
  return nullptr;
}

const char* take_sequenced(std::span<const std::byte> chunk, uint64_t at, MessageType type,
                           ParsedRequest& out) {
  SequencedMsg message;
  if (at + sizeof(message) > chunk.size()) return "message beyond the chunk's end";
  copy_once(&message, chunk.data() + at, sizeof(message));
  at += sizeof(message);
  const bool read = type == MessageType::kSequencedRead;
  if ((message.flags & ~kHasWords) != 0) return "unknown flags in a request";
  if (message.sg_cnt > (read ? 1 : 0)) return "more targets than the request can have";
  if (message.epoch == 0 || message.sequence == 0) return "a request without its number";
  out.direction = read ? Direction::kRead : Direction::kWrite;
  out.sequenced = true;
  out.epoch = message.epoch;
  out.sequence = message.sequence;
  if (message.sg_cnt == 1) {
    if (at + sizeof(out.target) > chunk.size()) return "message beyond the chunk's end";
    copy_once(&out.target, chunk.data() + at, sizeof(out.target));
    at += sizeof(out.target);
  }
  out.has_words = (message.flags & kHasWords) != 0;
  if (!out.has_words) return nullptr;
  UpperWords words;
  if (at + sizeof(words) > chunk.size()) return "message beyond the chunk's end";
  copy_once(&words, chunk.data() + at, sizeof(words));
  out.words = {words.words[0], words.words[1]};
  return nullptr;
}

}  // namespace

const char* parse_request(std::span<const std::byte> chunk, uint32_t offset, uint32_t max_io_bytes,
                          std::span<std::byte> user_header, ParsedRequest& out) {
  if (uint64_t{offset} + sizeof(WriteMsg) > chunk.size()) return "message beyond the chunk's end";
  WriteMsg head;  // all requests begin alike
  copy_once(&head, chunk.data() + offset, sizeof(head));
  out = {};
  const char* wrong = nullptr;
  switch (const auto type = static_cast<MessageType>(uint16_t{head.type}); type) {
    case MessageType::kWrite:
      out.direction = Direction::kWrite;
      break;
    case MessageType::kRead:
      wrong = take_read(chunk, offset, out);
      break;
    case MessageType::kSequencedWrite:
    case MessageType::kSequencedRead:
      wrong = take_sequenced(chunk, offset, type, out);
      break;
    default:
      wrong = "unknown message type";
  }
  if (wrong != nullptr) return wrong;

  const uint32_t usr_len = head.usr_len;
  if (usr_len > offset) return "user header longer than what precedes the message";
  if (usr_len > kUserHeaderBytesMax || usr_len > user_header.size()) return "user header too long";
  const uint32_t area_bytes = offset - usr_len;  // where data lies, or would lie
  if (area_bytes > max_io_bytes) return "more data than the session allows";
  const uint32_t asked_bytes = out.target.length;
  if (out.direction == Direction::kRead && asked_bytes > area_bytes) {
    return "read of more than its data area";
  }
  copy_once(user_header.data(), chunk.data() + area_bytes, usr_len);
  out.data_bytes = out.direction == Direction::kRead ? asked_bytes : area_bytes;
  out.user_header_bytes = usr_len;
  return nullptr;
}

}  // namespace braid::trs::wire
