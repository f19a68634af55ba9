// The transmission phase of NBD (the protocol document's proto.md, sections "Request message" and
// "Simple reply message"), as nbd.ko speaks it. Parsing is pure: bytes in, a verdict out.
//
//   client                                            server
//     | -- NbdRequest (28 bytes) [+ payload of a write] -> |
//     | <- NbdReply (16 bytes) [+ payload of a good read] - |   in any order, matched by the cookie
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/endian.h"
#include "bnbd/block.h"

namespace braid::bnbd {

inline constexpr uint32_t kNbdRequestMagic = 0x25609513;
inline constexpr uint32_t kNbdReplyMagic = 0x67446698;

enum class NbdCommand : uint16_t {
  kRead = 0,
  kWrite = 1,
  kDisconnect = 2,
  kFlush = 3,
  kTrim = 4,
  kWriteZeroes = 6,
};

inline constexpr uint16_t kNbdFlagFua = 1 << 0;     // durable when answered
inline constexpr uint16_t kNbdFlagNoHole = 1 << 1;  // write-zeroes: keep the space allocated

/// Client to server. The kernel calls the cookie a handle.
struct NbdRequest {
  base::be32 magic;
  base::be16 flags;
  base::be16 command;
  base::be64 cookie;
  base::be64 offset_bytes;
  base::be32 length_bytes;
};
static_assert(sizeof(NbdRequest) == 28 && alignof(NbdRequest) == 1);
static_assert(offsetof(NbdRequest, flags) == 4 && offsetof(NbdRequest, command) == 6);
static_assert(offsetof(NbdRequest, cookie) == 8 && offsetof(NbdRequest, offset_bytes) == 16);
static_assert(offsetof(NbdRequest, length_bytes) == 24);
static_assert(std::has_unique_object_representations_v<NbdRequest>);

/// Server to client, before the payload of a read without error.
struct NbdReply {
  base::be32 magic;
  base::be32 error;  // an errno of the protocol's list, 0 for success
  base::be64 cookie;
};
static_assert(sizeof(NbdReply) == 16 && alignof(NbdReply) == 1);
static_assert(offsetof(NbdReply, error) == 4 && offsetof(NbdReply, cookie) == 8);
static_assert(std::has_unique_object_representations_v<NbdReply>);

/// What to do about a request.
struct NbdVerdict {
  enum class Kind : uint8_t {
    kRun,         // a valid operation
    kRefuse,      // answer with `error`; then skip `payload_bytes` of the stream
    kDisconnect,  // the client takes its leave
    kBroken,      // not NBD: the stream has no more meaning, close it
  };
  Kind kind = Kind::kBroken;
  uint32_t error = 0;       // kRefuse: as on the wire
  const char* reason = "";  // kRefuse, kBroken: for the log
  uint64_t cookie = 0;
  uint32_t payload_bytes = 0;  // that follow the request
  // kRun:
  BlockOp op = BlockOp::kRead;
  bool force_unit_access = false;
  bool no_unmap = false;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
};

/// Judges a request for a device, of which one transfer is at most `transfer_max_bytes`.
NbdVerdict parse_nbd_request(std::span<const std::byte, sizeof(NbdRequest)> bytes,
                             const BlockInfo& info, uint32_t transfer_max_bytes);

/// The error of a reply: one of the numbers that the protocol lists; what it has no number for is
/// EIO.
uint32_t nbd_error(base::Errc status);

/// Transmission flags (NBD_FLAG_*) that a device deserves.
uint64_t nbd_transmission_flags(const BlockInfo& info, bool multi_conn);

}  // namespace braid::bnbd
