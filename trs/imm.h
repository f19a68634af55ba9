// The 32-bit immediate of TRS: type bits and payload bits (docs/trs-wire.md).
//
//   31..28 type | 27..0 payload
//   request      chunk index (high bits) | offset of the message in the chunk (low bits)
//   answer       27..19 errno, 18..0 request id
//   heartbeat    zero
//   notice       zero
//
// Here it is a host integer; to_network() and from_network() are the one place where it meets the
// byte order of work requests and completions. Pure functions, any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/endian.h"

namespace braid::trs {

inline constexpr unsigned kImmTypeBits = 4;
inline constexpr unsigned kImmPayloadBits = 28;
inline constexpr unsigned kImmErrnoBits = 9;
inline constexpr unsigned kImmRequestIdBits = 19;
static_assert(kImmTypeBits + kImmPayloadBits == 32);
static_assert(kImmErrnoBits + kImmRequestIdBits == kImmPayloadBits);
inline constexpr uint32_t kImmErrnoMax = (1u << kImmErrnoBits) - 1;
inline constexpr uint32_t kImmEio = 5;  // what stands for an errno that does not fit
inline constexpr uint32_t kSeeAnswerSlot = kImmErrnoMax;  // between Braid peers: wire::AnswerSlot
inline constexpr uint32_t kImmRequestIdMax = (1u << kImmRequestIdBits) - 1;

enum class ImmType : uint8_t {
  kRequest = 0,
  kAnswer = 1,
  kAnswerInvalidated = 2,  // and the key of a read's buffer has been invalidated
  kHeartbeat = 8,
  kHeartbeatAck = 9,
  kNotice = 10,  // between Braid peers, from the server: there is something to ask for
};

/// An immediate taken apart. `type` may be a value outside the enumeration.
struct Imm {
  ImmType type{};
  uint32_t payload = 0;
};

constexpr uint32_t encode_imm(Imm imm) {
  return static_cast<uint32_t>(imm.type) << kImmPayloadBits | imm.payload;
}
constexpr Imm decode_imm(uint32_t value) {
  return {static_cast<ImmType>(value >> kImmPayloadBits), value & ((1u << kImmPayloadBits) - 1)};
}

struct AnswerImm {
  uint32_t request_id = 0;
  uint32_t sys_errno = 0;    // positive; 0: success
  bool invalidated = false;  // the key of a read's buffer is gone
};
/// An errno too large for its bits becomes EIO's value.
constexpr uint32_t encode_answer(AnswerImm answer) {
  const uint32_t code = answer.sys_errno <= kImmErrnoMax ? answer.sys_errno : kImmEio;
  const ImmType type = answer.invalidated ? ImmType::kAnswerInvalidated : ImmType::kAnswer;
  return encode_imm({type, code << kImmRequestIdBits | answer.request_id});
}
constexpr AnswerImm decode_answer(uint32_t payload) {
  return {payload & kImmRequestIdMax, payload >> kImmRequestIdBits};
}

inline uint32_t to_network(uint32_t imm) {
  return base::byte_swap(imm);
}
inline uint32_t from_network(uint32_t imm_data) {
  return base::byte_swap(imm_data);
}

struct RequestImm {
  uint32_t chunk = 0;
  uint32_t offset_bytes = 0;
};

/// Requests of a session with `queue_depth` chunks: how many bits name the chunk.
class ImmCodec {
 public:
  constexpr explicit ImmCodec(uint32_t queue_depth) : offset_bits_(bits_left(queue_depth)) {}

  /// Whether chunk index and offset of every chunk can be expressed.
  static constexpr bool fits(uint32_t queue_depth, uint64_t chunk_bytes) {
    return queue_depth > 0 && queue_depth <= kImmRequestIdMax + 1 && chunk_bytes > 0 &&
           bits_for(queue_depth) + bits_for(chunk_bytes) <= kImmPayloadBits;
  }
  constexpr uint32_t encode(RequestImm request) const {
    return encode_imm({ImmType::kRequest, request.chunk << offset_bits_ | request.offset_bytes});
  }
  constexpr RequestImm decode(uint32_t payload) const {
    return {payload >> offset_bits_, payload & ((1u << offset_bits_) - 1)};
  }

 private:
  /// Bits that tell `count` values apart.
  static constexpr unsigned bits_for(uint64_t count) {
    return static_cast<unsigned>(std::bit_width(count - 1));
  }
  static constexpr unsigned bits_left(uint32_t queue_depth) {
    return kImmPayloadBits - std::min(bits_for(std::max(queue_depth, 1u)), kImmPayloadBits);
  }
  unsigned offset_bits_;
};

}  // namespace braid::trs
