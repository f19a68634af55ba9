// The messages of TRS: RTRS 2.0 byte for byte (docs/trs-wire.md).
//
// Everything is little-endian; the immediate (imm.h) is the exception. Structures are views of wire
// bytes: no padding, any alignment. The parse functions are the only way in: they copy what a peer
// sent into private memory, check every field and say in words what is wrong.
// Threads: any. Nothing here allocates but the text of an error.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/endian.h"
#include "base/result.h"
#include "trs/client.h"

namespace braid::trs::wire {

inline constexpr uint16_t kMagic = 0x1BBD;
inline constexpr uint16_t kVersionMajor = 2;
inline constexpr uint16_t kVersionMinor = 0;
inline constexpr uint16_t kVersion = kVersionMajor << 8 | kVersionMinor;
inline constexpr uint16_t kDefaultPort = 1234;

/// Between Braid peers, in bytes that the protocol reserves.
inline constexpr uint32_t kBraidMagic = 0x44415242;  // "BRAD" in memory order
/// Permits below the number of admin permits are used on connection 0 only, any other permit k on
/// connection 1 + k mod (cid_num - 1) only: so one thread of the server owns each chunk.
inline constexpr uint32_t kFeaturePinnedPermits = 1u << 0;
/// The info request tells the number of admin permits; without it there is one.
inline constexpr uint32_t kFeatureAdminPermits = 1u << 1;
/// Requests are numbered (SequencedMsg), paths can be fenced (FenceMsg) and join an incarnation by
/// its epoch: failover applies nothing twice. Needs both of the above.
inline constexpr uint32_t kFeatureSequenced = 1u << 2;
/// The client announces an answer area in its info request: one AnswerSlot per permit. Needs
/// kFeatureSequenced.
inline constexpr uint32_t kFeatureAnswerSlots = 1u << 3;
/// A permit that is not for admin requests may be used on any connection but 0, whenever the former
/// request of its chunk has been answered. Needs kFeatureSequenced.
inline constexpr uint32_t kFeatureLentPermits = 1u << 5;
/// An info answer with one region per chunk says that each chunk has a key of its own, which counts
/// up by one in its low 8 bits with each answer (docs/chunk-keys.md). Needs kFeatureSequenced.
inline constexpr uint32_t kFeatureCountedKeys = 1u << 6;
/// The server may send notices (imm.h). Needs no other.
inline constexpr uint32_t kFeatureNotices = 1u << 7;
/// A server keeps what it has answered when a session ends. If it has that of the client's former
/// session, it says so by the epoch of the next, which follows the former one (follows_epoch), and
/// knows requests by their former numbers. Needs kFeatureSequenced.
inline constexpr uint32_t kFeatureKeptAnswers = 1u << 8;
/// One thread of this side has all connections of a path: a heartbeat by connection 0 speaks for
/// those by which nothing is under way, if they are lost only together (vhca::Qp::shares_fate).
/// Shown by who has one reactor. Needs no other.
inline constexpr uint32_t kFeatureOneThread = 1u << 9;
/// Shown by a client that has a key, and by a server that takes nobody without (authentication.md).
/// Follows from having one: it is none of those that an older version lacks by choice.
inline constexpr uint32_t kFeatureAuthentication = 1u << 4;
static_assert(kAllFeatures == (kFeaturePinnedPermits | kFeatureAdminPermits | kFeatureSequenced |
                               kFeatureAnswerSlots | kFeatureLentPermits | kFeatureCountedKeys |
                               kFeatureNotices | kFeatureKeptAnswers | kFeatureOneThread));
/// What one with so many reactors shows of `wanted`.
constexpr uint32_t shown_features(uint32_t wanted, size_t reactors) {
  return reactors == 1 ? wanted : wanted & ~kFeatureOneThread;
}
/// Of `offered` by both: those that can be had without the others they need.
uint32_t usable_features(uint32_t offered);

inline constexpr uint16_t kConnectionsMax = 4096;  // cid_num
inline constexpr uint32_t kQueueDepthMax = 65535;
inline constexpr uint32_t kChunkBytesMin = 4096;
inline constexpr uint32_t kUserHeaderBytesMax = 1024;
inline constexpr size_t kSessionNameBytesMax = 254;

/// Offset and size checks of one message.
template <typename T>
inline constexpr bool kIsWireStruct =
    std::is_trivially_copyable_v<T>&& std::has_unique_object_representations_v<T> &&
    alignof(T) == 1;

struct Uuid {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const Uuid&) const = default;
};
std::string to_string(const Uuid& uuid);

// --- connection manager private data

struct ConnReq {
  std::array<uint8_t, 2> owned_by_cm{};  // zero; the kernel's CM writes here for AF_IB
  base::le16 magic = kMagic;
  base::le16 version = kVersion;
  base::le16 cid;
  base::le16 cid_num;
  base::le16 recon_cnt;  // counts the attempts of a path
  Uuid sess_uuid;        // names the path
  Uuid paths_uuid;       // names the session
  uint8_t flags = 0;     // kFirstConn
  base::le32 braid_magic;
  base::le32 braid_features;
  // With kFeatureSequenced: the lowest 24 bits of the epoch that the path joins; 0: it begins an
  // incarnation.
  std::array<uint8_t, 3> braid_joins{};
};
inline constexpr uint8_t kFirstConn = 1;
static_assert(sizeof(ConnReq) == 56 && kIsWireStruct<ConnReq>);
static_assert(offsetof(ConnReq, magic) == 2 && offsetof(ConnReq, version) == 4);
static_assert(offsetof(ConnReq, cid) == 6 && offsetof(ConnReq, cid_num) == 8);
static_assert(offsetof(ConnReq, recon_cnt) == 10 && offsetof(ConnReq, sess_uuid) == 12);
static_assert(offsetof(ConnReq, paths_uuid) == 28 && offsetof(ConnReq, flags) == 44);
static_assert(offsetof(ConnReq, braid_magic) == 45 && offsetof(ConnReq, braid_features) == 49);
static_assert(offsetof(ConnReq, braid_joins) == 53);
uint32_t joined_epoch(const ConnReq& request);  // its lowest 24 bits
void set_joined_epoch(ConnReq& request, uint32_t epoch);
inline constexpr uint32_t kJoinedEpochMask = 0xffffff;
/// The epoch of the incarnation that takes over what the one of `epoch` has answered.
constexpr uint32_t next_epoch(uint32_t epoch) {
  const uint32_t next = epoch + 1;
  return (next & kJoinedEpochMask) != 0 ? next : next + 1;
}
/// Whether `epoch` is a next one of `former`. Between them there may have been some of which the
/// client has not heard. One that is drawn by chance is taken for it once in 2^26 times; the server
/// then knows none of the former numbers, and ends the session as for any that is out of order.
constexpr bool follows_epoch(uint32_t epoch, uint32_t former) {
  return former != 0 && epoch - former - 1 < 64;
}

struct ConnRsp {
  base::le16 magic = kMagic;
  base::le16 version = kVersion;
  base::le16 error;  // 0, or a negative errno (two's complement)
  base::le16 queue_depth;
  base::le32 max_io_size;
  base::le32 max_hdr_size;
  base::le32 flags;  // kNewRkey
  base::le32 braid_magic;
  base::le32 braid_features;
  // With kFeatureAuthentication: to a connection that joins an authenticated path.
  Uuid braid_proof;
  std::array<uint8_t, 12> reserved{};
};
inline constexpr uint32_t kNewRkey =
    2;  // the server gives each chunk a new rkey after each request
static_assert(sizeof(ConnRsp) == 56 && kIsWireStruct<ConnRsp>);
static_assert(offsetof(ConnRsp, version) == 2 && offsetof(ConnRsp, error) == 4);
static_assert(offsetof(ConnRsp, queue_depth) == 6 && offsetof(ConnRsp, max_io_size) == 8);
static_assert(offsetof(ConnRsp, max_hdr_size) == 12 && offsetof(ConnRsp, flags) == 16);
static_assert(offsetof(ConnRsp, braid_magic) == 20 && offsetof(ConnRsp, braid_proof) == 28 &&
              offsetof(ConnRsp, reserved) == 44);

// --- SENDs on connection 0

enum class MessageType : uint16_t {
  kInfoReq = 0,
  kInfoRsp = 1,
  kWrite = 2,
  kRead = 3,
  kRkeyRsp = 4,
  // Between Braid peers with kFeatureSequenced.
  kSequencedWrite = 16,
  kSequencedRead = 17,
  kFencePath = 32,   // SEND on connection 0: end this path of the session
  kPathFenced = 33,  // the answer: nothing of it can land any more
  // Between peers with kFeatureAuthentication, before the info exchange (wire_auth.h).
  kAuthBegin = 34,
  kAuthChallenge = 35,
  kAuthProof = 36,
  kAuthResult = 37,
};

struct InfoReq {
  base::le16 type = uint16_t{0};
  std::array<char, 255> session_name{};  // NUL-terminated
  uint8_t braid_admin_permits = 0;       // with kFeatureAdminPermits
  // With kFeatureAnswerSlots: where the path's answers may write, one AnswerSlot per permit.
  base::le64 braid_answers_address;
  base::le32 braid_answers_key;
  std::array<uint8_t, 2> reserved{};
};
static_assert(sizeof(InfoReq) == 272 && kIsWireStruct<InfoReq>);
static_assert(offsetof(InfoReq, session_name) == 2 &&
              offsetof(InfoReq, braid_admin_permits) == 257 &&
              offsetof(InfoReq, braid_answers_address) == 258 &&
              offsetof(InfoReq, braid_answers_key) == 266);

/// A stretch of the sender's memory that the receiver of the message may access.
struct SgDescriptor {
  base::le64 address;
  base::le32 key;
  base::le32 length;
};
static_assert(sizeof(SgDescriptor) == 16 && kIsWireStruct<SgDescriptor>);
static_assert(offsetof(SgDescriptor, key) == 8 && offsetof(SgDescriptor, length) == 12);

/// Followed by sg_cnt descriptors that cover all chunks in order.
struct InfoRsp {
  base::le16 type = uint16_t{1};
  base::le16 sg_cnt;
  base::le32 braid_epoch;  // with kFeatureSequenced; never 0 then
};
static_assert(sizeof(InfoRsp) == 8 && kIsWireStruct<InfoRsp>);
static_assert(offsetof(InfoRsp, sg_cnt) == 2 && offsetof(InfoRsp, braid_epoch) == 4);

/// Of connection 0 after the info exchange: kFencePath and its answer kPathFenced.
struct FenceMsg {
  base::le16 type;
  base::le16 recon_cnt;  // of the life of the path that is to end: its name stays when it is remade
  base::le32 epoch;
  Uuid sess_uuid;  // of the path
};
static_assert(sizeof(FenceMsg) == 24 && kIsWireStruct<FenceMsg>);
static_assert(offsetof(FenceMsg, recon_cnt) == 2 && offsetof(FenceMsg, epoch) == 4 &&
              offsetof(FenceMsg, sess_uuid) == 8);
/// The longest message of connection 0 that is no part of the info exchange.
inline constexpr uint32_t kControlBytesMax = 64;

// --- at the end of what an RDMA WRITE_WITH_IMM puts into a chunk: [data | user header | message]

struct WriteMsg {
  base::le16 type = uint16_t{2};
  base::le16 usr_len;
};
static_assert(sizeof(WriteMsg) == 4 && kIsWireStruct<WriteMsg>);
static_assert(offsetof(WriteMsg, usr_len) == 2);

/// Followed by sg_cnt (0 or 1) descriptors: where the data goes.
struct ReadMsg {
  base::le16 type = uint16_t{3};
  base::le16 usr_len;
  base::le16 flags;  // kNeedInvalidate
  base::le16 sg_cnt;
};
inline constexpr uint16_t kNeedInvalidate = 1;
static_assert(sizeof(ReadMsg) == 8 && kIsWireStruct<ReadMsg>);
static_assert(offsetof(ReadMsg, flags) == 4 && offsetof(ReadMsg, sg_cnt) == 6);

/// Write and read between peers with kFeatureSequenced. A read with data is followed by
/// one descriptor; then, with kHasWords, two words of the upper layer.
struct SequencedMsg {
  base::le16 type;
  base::le16 usr_len;
  base::le16 flags;  // kHasWords
  base::le16 sg_cnt;
  base::le32 epoch;
  base::le32 sequence;  // counts the requests of the chunk in this epoch, from 1
};
inline constexpr uint16_t kHasWords = 2;
/// 0 means that there was none yet.
constexpr uint32_t next_sequence(uint32_t sequence) {
  return sequence == UINT32_MAX ? 1 : sequence + 1;
}
static_assert(sizeof(SequencedMsg) == 16 && kIsWireStruct<SequencedMsg>);
static_assert(offsetof(SequencedMsg, flags) == 4 && offsetof(SequencedMsg, epoch) == 8 &&
              offsetof(SequencedMsg, sequence) == 12);

struct UpperWords {
  std::array<base::le64, 2> words;
};
static_assert(sizeof(UpperWords) == 16 && kIsWireStruct<UpperWords>);

/// The longest of them.
inline constexpr uint32_t kMessageBytesMax =
    sizeof(SequencedMsg) + sizeof(SgDescriptor) + sizeof(UpperWords);

/// A base::Errc as an AnswerSlot says it; 0 is success. Numbers are never used again.
uint32_t status_code(base::Errc status);
/// Nothing: no such number is known.
std::optional<base::Errc> status_of(uint32_t code);

/// What an answer says beyond its immediate. The immediate's errno is kSeeAnswerSlot then.
struct AnswerSlot {
  base::le32 status;    // status_code()
  base::le32 sequence;  // of the request that it answers
  std::array<base::le64, 2> words;
  base::le32 new_key;  // of the chunk, from a server that changes it; else 0
  base::le32 flags;    // kHasWords
  std::array<uint8_t, 32> reserved{};
};
inline constexpr uint32_t kAnswerSlotBytes = 64;
static_assert(sizeof(AnswerSlot) == kAnswerSlotBytes && kIsWireStruct<AnswerSlot>);
static_assert(offsetof(AnswerSlot, words) == 8 && offsetof(AnswerSlot, new_key) == 24);
/// What stands behind the data in a chunk, at most.
inline constexpr uint32_t kHeadersBytesMax = kUserHeaderBytesMax + kMessageBytesMax;

struct RkeyRsp {
  base::le16 type = uint16_t{4};
  base::le16 buf_id;
  base::le32 rkey;
};
static_assert(sizeof(RkeyRsp) == 8 && kIsWireStruct<RkeyRsp>);
static_assert(offsetof(RkeyRsp, buf_id) == 2 && offsetof(RkeyRsp, rkey) == 4);

// --- validation. Private data may be padded by the connection manager: what follows is ignored.

base::Result<ConnReq> parse_conn_req(std::span<const std::byte> private_data);
/// Of an accept: what the server grants. kProtocol for nonsense.
base::Result<ConnRsp> parse_accept(std::span<const std::byte> private_data);
/// Of a reject: the positive errno in it.
base::Result<int> parse_reject(std::span<const std::byte> private_data);
struct ParsedInfoReq {
  std::string session_name;
  // As sent: to be believed from a peer with the feature only.
  uint8_t admin_permits = 0;
  uint64_t answers_address = 0;
  uint32_t answers_key = 0;
};
/// The new key of the chunk of request `request_id`, in the answer to that request. kProtocol for
/// anything else.
base::Result<uint32_t> parse_rkey_rsp(std::span<const std::byte> message, uint32_t request_id);
base::Result<ParsedInfoReq> parse_info_req(std::span<const std::byte> message);
/// The base of all chunks and their key; `queue_depth` chunks of `chunk_bytes`. Several regions are
/// accepted and come out one per `chunks_per_region` chunks.
struct ChunkRegion {
  uint64_t address = 0;
  uint32_t key = 0;
};
/// Fills `chunks` (queue_depth entries) with the address and key of each chunk; the value is the
/// epoch as sent.
/// `regions` gets their number.
base::Result<uint32_t> parse_info_rsp(std::span<const std::byte> message, uint32_t chunk_bytes,
                                      std::span<ChunkRegion> chunks, size_t* regions = nullptr);
/// kFencePath or kPathFenced, as `type` says is due.
base::Result<FenceMsg> parse_fence(std::span<const std::byte> message, MessageType type);

/// A request as it lies in a chunk, checked.
struct ParsedRequest {
  Direction direction = Direction::kRead;
  bool sequenced = false;  // with epoch and sequence
  bool has_words = false;
  uint32_t epoch = 0;
  uint32_t sequence = 0;
  std::array<uint64_t, 2> words{};
  uint32_t data_bytes = 0;  // write: what came, at the chunk's start; read: how much to answer
  uint32_t user_header_bytes = 0;
  SgDescriptor target{};    // read with data: where the answer goes
  bool invalidate = false;  // the target's key is to be invalidated before the answer
};
/// Reads the message at `offset` of a chunk that its client may be writing to: each byte is copied
/// once, before it is looked at. `user_header` gets the user header (kUserHeaderBytesMax bytes).
/// Null if all is well, else what is wrong; then nothing of `out` may be used. No allocation.
const char* parse_request(std::span<const std::byte> chunk, uint32_t offset, uint32_t max_io_bytes,
                          std::span<std::byte> user_header, ParsedRequest& out);

template <typename T>
std::span<const std::byte> bytes_of(const T& message) {
  static_assert(kIsWireStruct<T>);
  return std::as_bytes(std::span<const T, 1>(&message, 1));
}

}  // namespace braid::trs::wire
