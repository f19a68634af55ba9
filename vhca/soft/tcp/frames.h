// The frames of the TCP wire (docs/tcp-wire.md): what two software HCAs say over the one TCP
// connection of a QP pair. Little-endian; a header of one size, then `length` bytes.
//
//   connecting: kConnect -> ; <- kAccept or kReject ; kReady ->
//   then both:  kRequest, answered by `acknowledged` of any frame the other way, or by kResponse,
//               kNoReceive, kError; kGone and kDisconnect end it
//
// Threads: none; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/endian.h"
#include "base/result.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::tcp {

inline constexpr uint32_t kFrameMagic = 0x50435442;  // "BTCP"
inline constexpr uint8_t kFrameVersion = 1;

enum class FrameKind : uint8_t {
  kConnect = 1,      // initiator: CmBody and its private data. `epoch` is the initiator's half
  kAccept = 2,       // acceptor: the same; `epoch` is what all frames from now on carry
  kReject = 3,       // acceptor: private data; `status` is a RejectReason
  kReady = 4,        // initiator: its QP is in RTS
  kRequest = 5,      // `sequence`, the request; then the data of a SEND or WRITE, or Operands
  kAnswer = 6,       // `acknowledged` alone
  kResponse = 7,     // of the READ or atomic `sequence`; then its data
  kNoReceive = 8,    // `sequence` met no receive: again after rnr_timer, and all behind it
  kError = 9,        // `sequence` failed with `status`
  kGone = 10,        // the QP left RTR and RTS: no request is executed any more
  kDisconnect = 11,  // the connection ends in order
  kPort = 12,        // `status` 1: faults of the port may keep answers back; 0: not any more
};
inline constexpr uint8_t kFrameKindMax = 12;

enum class RejectReason : uint8_t { kUser = 0, kBacklog = 1, kInvalid = 2 };

inline constexpr uint8_t kFlagSolicited = 1;  // of a request
inline constexpr uint8_t kFlagSignaled = 2;   // of a request: somebody waits for its answer
inline constexpr uint8_t kFlagsKnown = kFlagSolicited | kFlagSignaled;

struct FrameHeader {
  base::le32 magic;
  uint8_t version = 0;
  uint8_t kind = 0;  // FrameKind
  uint8_t flags = 0;
  uint8_t opcode = 0;         // of a request: ibv_wr_opcode
  base::le64 length;          // bytes behind the header
  base::le32 epoch;           // of the connection, random
  uint8_t status = 0;         // of a kError: ibv_wc_status; of a kPort: 0 or 1
  uint8_t rnr_timer = 0;      // of a kNoReceive: 0..31
  uint8_t reserved[2] = {};   // zero
  base::le64 sequence;        // of the request that this is, or answers
  base::le64 acknowledged;    // the receiver's requests below this one are executed
  base::le64 remote_address;  // of a request
  base::le32 rkey;
  base::le32 imm;        // the bytes of the work request, as they are
  base::le32 requested;  // the request's length; of a READ what its response will have
  base::le32 reserved2;  // zero
};
static_assert(sizeof(FrameHeader) == 64 && offsetof(FrameHeader, length) == 8 &&
              offsetof(FrameHeader, epoch) == 16 && offsetof(FrameHeader, status) == 20 &&
              offsetof(FrameHeader, sequence) == 24 && offsetof(FrameHeader, acknowledged) == 32 &&
              offsetof(FrameHeader, remote_address) == 40 && offsetof(FrameHeader, rkey) == 48 &&
              offsetof(FrameHeader, requested) == 56);
static_assert(std::is_trivially_copyable_v<FrameHeader> &&
              std::has_unique_object_representations_v<FrameHeader>);

/// Behind the header of an atomic request.
struct Operands {
  base::le64 compare_add;
  base::le64 swap;
};
static_assert(sizeof(Operands) == 16 && std::has_unique_object_representations_v<Operands>);

/// Behind the header of a kConnect or kAccept; private data follows.
struct CmBody {
  base::le32 qp_number;
  base::le16 private_bytes;
  base::le16 reserved;  // zero
};
static_assert(sizeof(CmBody) == 8 && std::has_unique_object_representations_v<CmBody>);

inline constexpr size_t kConnectPrivateMax = 56;
inline constexpr size_t kAcceptPrivateMax = 196;
inline constexpr size_t kRejectPrivateMax = 148;
/// No frame of the connection manager has more behind its header.
inline constexpr size_t kCmBytesMax = sizeof(CmBody) + kAcceptPrivateMax;

/// Nothing if the header is sound by itself; else what is wrong, for people.
std::optional<std::string> validate(const FrameHeader& header);

/// A request as its frame tells it, without data. The header is sound.
Request request_of(const FrameHeader& header);
/// Bytes behind the header of a request.
uint64_t bytes_behind(ibv_wr_opcode opcode, uint32_t length);

/// A frame of the connection manager with all its bytes.
std::vector<std::byte> encode_cm(FrameKind kind, uint32_t epoch, uint32_t qp_number,
                                 std::span<const std::byte> private_data,
                                 RejectReason reason = RejectReason::kUser);
struct Cm {
  FrameKind kind = FrameKind::kConnect;
  RejectReason reason = RejectReason::kUser;
  uint32_t epoch = 0;
  uint32_t qp_number = 0;
  std::vector<std::byte> private_data;
};
/// How long the whole frame is whose header begins here; kProtocol if it is none of the connection
/// manager's or breaks a rule. `bytes`: at least a header.
base::Result<size_t> cm_frame_bytes(std::span<const std::byte> bytes);
/// kProtocol, naming the rule.
base::Result<Cm> parse_cm(std::span<const std::byte> frame);

}  // namespace braid::vhca::soft::tcp
