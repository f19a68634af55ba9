// The messages of BNBD: RNBD's protocol 2.0 to 2.2, byte for byte, and Braid's extension of the
// open answer (docs/bnbd-wire.md).
//
// Each message is the user header of one TRS request. SESS_INFO and OPEN are read requests whose
// answer arrives as the read's data; CLOSE is a write request without data; IO carries its payload
// as the request's data. Integers are little-endian. Padding and reserved bytes are sent as zero
// and ignored when received, because Linux's client leaves stack bytes in them.
//
// Everything here is pure and may be used on any thread. parse_io() neither allocates nor logs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/endian.h"
#include "base/result.h"

namespace braid::bnbd::wire {

using base::le16;
using base::le32;
using base::le64;

inline constexpr uint8_t kVersionMajor = 2;  // only the major number is exchanged
inline constexpr uint32_t kSectorBytes = 512;
inline constexpr size_t kNameBytes = 255;  // with the terminating zero

enum class MessageType : uint16_t {
  kSessionInfo = 0,        // client, first on every new path
  kSessionInfoAnswer = 1,  // server, data of kSessionInfo
  kOpen = 2,               // client, once per device and path
  kOpenAnswer = 3,         // server, data of kOpen
  kIo = 4,                 // client
  kClose = 5,              // client
  // Between Braid peers:
  kNews = 64,        // client, now and again
  kNewsAnswer = 65,  // server, data of kNews
};

enum class AccessMode : uint8_t {
  kReadOnly = 0,
  kReadWrite = 1,  // one writer over all sessions
  kMigration = 2,  // a second writer, while a virtual machine moves
};
std::string_view to_string(AccessMode mode);

// --- the `rw` word of an IO message: operation in bits 7..0, flags above
enum class Operation : uint8_t {
  kRead = 0,
  kWrite = 1,
  kFlush = 2,
  kDiscard = 3,
  kSecureErase = 4,  // offered for disks that can
  kWriteZeroes = 5,  // was "write same" before 7.0, hence offered to and by Braid peers only
};
inline constexpr uint32_t kOperationMask = 0xff;
inline constexpr uint32_t kFlagSync = 1 << 8;  // somebody waits for it; a hint
inline constexpr uint32_t kFlagForceUnitAccess = 1 << 9;
inline constexpr uint32_t kFlagPreflush = 1 << 10;  // since 2.1
inline constexpr uint32_t kFlagNoUnmap = 1 << 11;   // since 2.2
inline constexpr uint32_t kFlagsAll =
    kFlagSync | kFlagForceUnitAccess | kFlagPreflush | kFlagNoUnmap;

// --- OpenAnswer::cache_policy
inline constexpr uint8_t kCacheForceUnitAccess = 1 << 0;
inline constexpr uint8_t kCacheWriteBack = 1 << 1;

/// Stands for no device: no server gives this id. (Linux's count from 0, for each session; Braid's
/// are never 0, which in their extended answers stands for a refusal.)
inline constexpr uint32_t kNoDevice = UINT32_MAX;

struct Header {
  le16 type;
  le16 padding;
};

struct SessionInfo {  // and its answer
  Header header;
  uint8_t version = kVersionMajor;
  std::array<uint8_t, 31> reserved{};
};

struct Open {
  Header header;
  uint8_t access_mode = 0;
  uint8_t reserved = 0;
  std::array<char, kNameBytes> name{};  // zero-terminated
  std::array<uint8_t, 3> reserved_end{};
};

/// Follows Open between Braid peers when a client opens a device once more.
struct OpenClaim {
  le16 version;
  le16 length_bytes;  // of the claim
  le32 flags;         // from version 2 on
  le64 tenure;        // of the answer to the first opening; 0: for reading
};
inline constexpr uint16_t kClaimVersion = 2;
/// Its user wants it back although the server's operator has closed it.
inline constexpr uint32_t kClaimRemap = 1 << 0;

struct ClaimingOpen {
  Open open;
  OpenClaim claim;
};

struct OpenAnswer {
  Header header;
  le32 device_id;  // of the open device, for the session
  le64 size_sectors;
  le32 max_io_sectors;
  le32 max_write_zeroes_sectors;
  le32 max_discard_sectors;
  le32 discard_granularity_bytes;
  le32 discard_alignment_bytes;
  le16 physical_block_bytes;
  le16 logical_block_bytes;
  le16 max_segments;
  le16 secure_discard;     // not 0: secure erase is offered, as long as a discard may be
  uint8_t rotational = 0;  // obsolete
  uint8_t cache_policy = 0;
  std::array<uint8_t, 10> reserved{};
};

struct Close {
  Header header;
  le32 device_id;
};

/// The kernel's C structure: 26 bytes of fields, padded to 32. Version 1 ended before `priority`.
struct Io {
  Header header;
  le32 device_id;
  le64 sector;
  le32 operation_flags;  // "rw"
  le32 length_bytes;     // "bi_size": a claim, checked against the data that really came
  le16 priority;
  std::array<uint8_t, 6> padding{};
};
inline constexpr size_t kIoBytesWithoutPriority = 24;

/// Follows OpenAnswer between Braid peers when the client asked for this many bytes. `version` and
/// `length_bytes` come first: a later version appends fields and counts up.
struct OpenExtension {
  le16 version;
  le16 length_bytes;  // of the extension
  le32 status;        // 0, or the errno of a refusal; then device_id is 0 and `text` says why
  le64 incarnation;
  std::array<uint8_t, 16> identity;  // 128-bit hash of the identity's full text
  le16 text_bytes;
  std::array<uint8_t, 6> reserved;
  std::array<char, 416> text;  // the identity, cut off if longer; or the reason of the refusal
  le64 tenure;                 // from version 2 on; 0: not opened for writing
};
inline constexpr uint16_t kExtensionVersion = 3;  // since then a server answers kNews
/// OpenExtension::status: the server's operator has closed the device (EKEYREVOKED).
inline constexpr uint32_t kStatusRevoked = 128;

struct ExtendedOpenAnswer {
  OpenAnswer answer;
  OpenExtension extension;
};

/// What has become of the session's devices since.
struct News {
  Header header;
  le32 reserved;
  le64 seen;  // NewsAnswer::newest of the last answer on this path; 0: none
};

enum class NewsKind : uint8_t {
  kResized = 1,
  kClosed = 2,  // by the server's operator: the id is of no device any more
};

struct NewsItem {
  le32 device_id;
  uint8_t kind = 0;
  std::array<uint8_t, 3> reserved{};
  le64 size_sectors;  // kResized
};
inline constexpr size_t kNewsItemsMax = 64;

/// `count` items follow. There may be more news than fit: asked again the server tells them.
struct NewsAnswer {
  Header header;
  le32 count;
  le64 newest;  // the number of the last item, or as `seen` if there is none
};
inline constexpr size_t kNewsBytesMax = sizeof(NewsAnswer) + kNewsItemsMax * sizeof(NewsItem);

template <typename T, size_t kSize>
inline constexpr bool kIsWireStruct =
    sizeof(T) == kSize && alignof(T) == 1 &&
    std::is_trivially_copyable_v<T>&& std::has_unique_object_representations_v<T>;
static_assert(kIsWireStruct<Header, 4>);
static_assert(kIsWireStruct<SessionInfo, 36> && offsetof(SessionInfo, version) == 4);
static_assert(kIsWireStruct<Open, 264> && offsetof(Open, access_mode) == 4 &&
              offsetof(Open, name) == 6);
static_assert(kIsWireStruct<OpenClaim, 16> && offsetof(OpenClaim, tenure) == 8);
static_assert(kIsWireStruct<ClaimingOpen, 280> && offsetof(ClaimingOpen, claim) == 264);
static_assert(kIsWireStruct<OpenAnswer, 56> && offsetof(OpenAnswer, device_id) == 4 &&
              offsetof(OpenAnswer, size_sectors) == 8 &&
              offsetof(OpenAnswer, max_io_sectors) == 16);
static_assert(offsetof(OpenAnswer, max_write_zeroes_sectors) == 20 &&
              offsetof(OpenAnswer, max_discard_sectors) == 24 &&
              offsetof(OpenAnswer, discard_granularity_bytes) == 28 &&
              offsetof(OpenAnswer, discard_alignment_bytes) == 32 &&
              offsetof(OpenAnswer, physical_block_bytes) == 36 &&
              offsetof(OpenAnswer, logical_block_bytes) == 38 &&
              offsetof(OpenAnswer, max_segments) == 40 &&
              offsetof(OpenAnswer, secure_discard) == 42 &&
              offsetof(OpenAnswer, rotational) == 44 && offsetof(OpenAnswer, cache_policy) == 45);
static_assert(kIsWireStruct<Close, 8> && offsetof(Close, device_id) == 4);
static_assert(kIsWireStruct<Io, 32> && offsetof(Io, device_id) == 4 && offsetof(Io, sector) == 8 &&
              offsetof(Io, operation_flags) == 16 && offsetof(Io, length_bytes) == 20 &&
              offsetof(Io, priority) == kIoBytesWithoutPriority);
static_assert(kIsWireStruct<OpenExtension, 464> && offsetof(OpenExtension, status) == 4 &&
              offsetof(OpenExtension, incarnation) == 8 &&
              offsetof(OpenExtension, identity) == 16 &&
              offsetof(OpenExtension, text_bytes) == 32 && offsetof(OpenExtension, text) == 40 &&
              offsetof(OpenExtension, tenure) == 456);
static_assert(kIsWireStruct<ExtendedOpenAnswer, 520>);
static_assert(kIsWireStruct<News, 16> && offsetof(News, seen) == 8);
static_assert(kIsWireStruct<NewsItem, 16> && offsetof(NewsItem, kind) == 4 &&
              offsetof(NewsItem, size_sectors) == 8);
static_assert(kIsWireStruct<NewsAnswer, 16> && offsetof(NewsAnswer, count) == 4 &&
              offsetof(NewsAnswer, newest) == 8);

/// The bytes of a message, for sending.
template <typename T>
std::span<const std::byte> bytes_of(const T& message) {
  return std::as_bytes(std::span(&message, 1));
}

/// The type of a user header; kProtocol if it is too short or of no known request type.
base::Result<MessageType> request_type(std::span<const std::byte> header);

// Each parser copies a message out of hostile bytes after checking length, type and every field
// whose bad value could do harm. Errors: kProtocol, naming field, value and what would be right.
base::Result<SessionInfo> parse_session_info(std::span<const std::byte> bytes, MessageType type);
base::Result<Close> parse_close(std::span<const std::byte> bytes);

struct OpenRequest {
  AccessMode mode = AccessMode::kReadOnly;
  std::string name;     // 1 to 254 bytes, no zero inside; not yet judged as a path
  bool again = false;   // it has had the device open before
  bool remap = false;   // kClaimRemap
  uint64_t tenure = 0;  // that it claims; 0: none
};
base::Result<OpenRequest> parse_open(std::span<const std::byte> bytes);
/// kInvalid if the name is empty or does not fit.
base::Result<Open> make_open(std::string_view name, AccessMode mode);
ClaimingOpen make_claim(const Open& open, uint64_t tenure, bool remap);

/// The news that a client has seen.
base::Result<uint64_t> parse_news(std::span<const std::byte> bytes);
News make_news(uint64_t seen);

struct DeviceNews {
  uint32_t device_id = 0;
  NewsKind kind = NewsKind::kResized;
  uint64_t size_bytes = 0;  // kResized
};
struct NewsList {
  uint64_t newest = 0;
  std::vector<DeviceNews> items;  // at most kNewsItemsMax
};
base::Result<NewsList> parse_news_answer(std::span<const std::byte> bytes);
/// The bytes of an answer, to be followed by zeroes.
std::vector<std::byte> make_news_answer(const NewsList& news);

/// What an open answer says, in Braid's units.
struct OpenedDevice {
  uint32_t device_id = 0;
  uint64_t size_bytes = 0;
  uint32_t max_io_bytes = 0;
  uint64_t max_write_zeroes_bytes = 0;
  uint64_t max_discard_bytes = 0;
  uint64_t max_secure_erase_bytes = 0;  // 0, or as max_discard_bytes
  uint32_t discard_granularity_bytes = 0;
  uint32_t discard_alignment_bytes = 0;
  uint32_t physical_block_bytes = 0;
  uint32_t logical_block_bytes = 0;
  bool force_unit_access = false;
  bool write_cache = false;
  // From Braid's extension; `identity` is empty against other peers.
  std::string identity;
  std::array<uint8_t, 16> identity_hash{};
  uint64_t incarnation = 0;
  uint64_t tenure = 0;
};

/// Reads an answer; with 520 bytes or more the extension is required. A refusal told by the
/// extension is an error with the refusal's code (kRefused for a code that would speak of the path,
/// kCanceled for kStatusRevoked) and its text; a breach of the protocol is kProtocol.
base::Result<OpenedDevice> parse_open_answer(std::span<const std::byte> bytes);
OpenAnswer make_open_answer(const OpenedDevice& device);
OpenExtension make_extension(const OpenedDevice& device);
/// The answer that refuses between Braid peers.
ExtendedOpenAnswer make_refusal(int sys_errno, std::string_view why);

/// Copies a valid IO message to `out` and returns null, or says in a few words what is wrong.
/// Lengths against the data, sector ranges and the device id are the caller's to judge.
const char* parse_io(std::span<const std::byte> bytes, Io& out);

/// What a priority from a client is worth here: real time counts as the most urgent of best effort,
/// as a client must not keep the server's own work from its disks; nonsense as none.
uint16_t heeded_priority(uint16_t priority);

inline Operation operation_of(const Io& io) {
  return static_cast<Operation>(io.operation_flags & kOperationMask);
}

/// The 128-bit hash that names an identity on the wire.
std::array<uint8_t, 16> hash_identity(std::string_view identity);

}  // namespace braid::bnbd::wire
