// The transmission phase of NBD (the protocol document's proto.md, sections "Request message",
// "Simple reply message" and "Structured reply chunk message"), as nbd.ko and other clients speak
// it. Parsing is pure: bytes in, a verdict out.
//
//   client                                            server
//     | -- NbdRequest (28 bytes) [+ payload of a write] -> |
//     | <- NbdReply (16 bytes) [+ payload of a good read] - |   in any order, matched by the cookie
//
// With structured replies a good read is one NbdChunk of kOffsetData, or several of a long one, and
// an error one of kError:
//
//     | <- NbdChunk (20 bytes), offset (8), payload -------- |
//     | <- NbdChunk, error (4), length (2), words ---------- |
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/endian.h"
#include "bnbd/block.h"

namespace braid::bnbd {

inline constexpr uint32_t kNbdRequestMagic = 0x25609513;
inline constexpr uint32_t kNbdReplyMagic = 0x67446698;
inline constexpr uint32_t kNbdChunkMagic = 0x668e33ef;

/// The longest read or write: what clients may count on that do not ask for limits.
inline constexpr uint32_t kNbdTransferMax = 32 << 20;

enum class NbdCommand : uint16_t {
  kRead = 0,
  kWrite = 1,
  kDisconnect = 2,
  kFlush = 3,
  kTrim = 4,
  kWriteZeroes = 6,
};

inline constexpr uint16_t kNbdFlagFua = 1 << 0;           // durable when answered
inline constexpr uint16_t kNbdFlagNoHole = 1 << 1;        // write-zeroes: keep the space allocated
inline constexpr uint16_t kNbdFlagDontFragment = 1 << 2;  // a read's data in one chunk

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

/// Server to client, with structured replies; `length_bytes` follow it.
struct NbdChunk {
  base::be32 magic;
  base::be16 flags;
  base::be16 type;
  base::be64 cookie;
  base::be32 length_bytes;
};
static_assert(sizeof(NbdChunk) == 20 && alignof(NbdChunk) == 1);
static_assert(offsetof(NbdChunk, flags) == 4 && offsetof(NbdChunk, type) == 6);
static_assert(offsetof(NbdChunk, cookie) == 8 && offsetof(NbdChunk, length_bytes) == 16);
static_assert(std::has_unique_object_representations_v<NbdChunk>);

inline constexpr uint16_t kNbdChunkDone = 1 << 0;          // the last of its answer
inline constexpr uint16_t kNbdChunkOffsetData = 1;         // offset (64 bits), data
inline constexpr uint16_t kNbdChunkError = (1 << 15) + 1;  // error (32), length (16), words

/// What a client and its server have agreed on, and the owner of the export wants.
struct NbdTerms {
  bool structured = false;  // reads and errors are answered by chunks
  bool read_only = false;   // whatever the device allows
};

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

/// Judges a request for a device. The data of a read goes in chunks of at most `chunk_max_bytes`.
NbdVerdict parse_nbd_request(std::span<const std::byte, sizeof(NbdRequest)> bytes,
                             const BlockInfo& info, uint32_t chunk_max_bytes, NbdTerms terms = {});

/// All of an answer but the data of a read.
struct NbdAnswerHead {
  static constexpr size_t kMax = 192;
  std::array<std::byte, kMax> bytes;
  size_t length = 0;
};
/// Of a read: what follows the head of an answer, or of one of its chunks.
struct NbdPart {
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  bool last = true;
};
/// Makes the head of the answer to a request; after that of a read without error `part` follows.
/// `error`: 0 or one of the protocol; `words` say why, for clients that take words.
void make_nbd_answer(const NbdVerdict& verdict, const NbdPart& part, uint32_t error,
                     std::string_view words, bool structured, NbdAnswerHead& head);

/// The error of a reply: one of the numbers that the protocol lists; what it has no number for is
/// EIO.
uint32_t nbd_error(base::Errc status);

/// Transmission flags (NBD_FLAG_*) that a device deserves, for the kernel.
uint64_t nbd_transmission_flags(const BlockInfo& info, bool multi_conn);
/// The same for the clients of a socket: several connections always, flush also where the device
/// has no cache (it costs nothing, and clients that ask for it unasked exist), DF if structured.
uint16_t nbd_export_flags(const BlockInfo& info, NbdTerms terms);

}  // namespace braid::bnbd
