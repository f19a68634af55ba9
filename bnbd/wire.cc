#include "bnbd/wire.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/host.h"
#include "bnbd/block.h"

namespace braid::bnbd::wire {

using base::Errc;
using base::make_error;
using base::Result;

namespace {

/// Copies a message whose length and type must be exactly these.
template <typename T>
Result<T> copy_message(std::span<const std::byte> bytes, MessageType type, std::string_view what) {
  if (bytes.size() != sizeof(T)) {
    return make_error(Errc::kProtocol, "{} message of {} bytes: must be {}", what, bytes.size(),
                      sizeof(T));
  }
  T message;
  std::memcpy(&message, bytes.data(), sizeof(T));
  if (message.header.type != static_cast<uint16_t>(type)) {
    return make_error(Errc::kProtocol, "{} message has type {}: must be {}", what,
                      static_cast<unsigned>(message.header.type), static_cast<unsigned>(type));
  }
  return message;
}

bool sane_block_size(uint32_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kSectorBytes && bytes <= kBlockBytesMax;
}

/// Sectors of a byte count, bounded by the field's width.
uint32_t to_sectors(uint64_t bytes) {
  return static_cast<uint32_t>(std::min<uint64_t>(bytes / kSectorBytes, UINT32_MAX));
}

std::string_view text_of(const OpenExtension& extension) {
  return {extension.text.data(), extension.text_bytes};
}

void set_text(OpenExtension& extension, std::string_view text) {
  const size_t length = std::min(text.size(), extension.text.size());
  std::copy_n(text.data(), length, extension.text.data());
  extension.text_bytes = static_cast<uint16_t>(length);
}

OpenExtension empty_extension() {
  OpenExtension extension{};
  extension.version = kExtensionVersion;
  extension.length_bytes = static_cast<uint16_t>(sizeof(OpenExtension));
  return extension;
}

/// A refusal is told by one request's answer, so its code must be none that speaks of the path or
/// of the protocol: the client would take the path down for all devices.
Errc refusal_code(uint32_t status) {
  if (status == kStatusRevoked) return Errc::kCanceled;
  const Errc code = base::errc_from_errno(static_cast<int>(std::min<uint32_t>(status, 511)));
  switch (code) {
    case Errc::kOk:
    case Errc::kDisconnected:
    case Errc::kCanceled:
    case Errc::kProtocol:
      return Errc::kRefused;
    default:
      return code;
  }
}

base::Status read_claim(std::span<const std::byte> bytes, OpenRequest& request) {
  OpenClaim claim;
  std::memcpy(&claim, bytes.data(), sizeof(claim));
  if (claim.version == 0 || claim.length_bytes != sizeof(claim)) {
    return make_error(
        Errc::kProtocol,
        "open message's claim has version {} and {} bytes: must be at least {} and {} "
        "bytes",
        static_cast<unsigned>(claim.version), static_cast<unsigned>(claim.length_bytes), 1,
        sizeof(claim));
  }
  request.again = true;
  request.remap = claim.version >= 2 && (claim.flags & kClaimRemap) != 0;
  request.tenure = claim.tenure;
  return {};
}

base::Status read_extension(std::span<const std::byte> bytes, OpenedDevice& device) {
  OpenExtension extension;
  std::memcpy(&extension, bytes.data(), sizeof(extension));
  if (extension.version < kExtensionVersion || extension.length_bytes < sizeof(OpenExtension) ||
      extension.length_bytes > bytes.size()) {
    return make_error(Errc::kProtocol,
                      "open answer's extension has version {} and {} bytes: must be at least {} "
                      "and {} to {} bytes",
                      static_cast<unsigned>(extension.version),
                      static_cast<unsigned>(extension.length_bytes), kExtensionVersion,
                      sizeof(OpenExtension), bytes.size());
  }
  if (extension.text_bytes > extension.text.size()) {
    return make_error(Errc::kProtocol, "open answer's text of {} bytes: at most {} fit",
                      static_cast<unsigned>(extension.text_bytes), extension.text.size());
  }
  if (extension.status != 0) {
    return base::Error(refusal_code(extension.status), std::string(text_of(extension)));
  }
  device.identity = text_of(extension);
  device.identity_hash = extension.identity;
  if (extension.text_bytes == extension.text.size()) {
    // Perhaps cut off: the hash tells apart what the text does not.
    for (uint8_t byte : extension.identity) device.identity += fmt::format("{:02x}", byte);
  }
  device.incarnation = extension.incarnation;
  device.tenure = extension.tenure;
  if (device.identity.empty()) {
    return make_error(Errc::kProtocol, "open answer has an empty identity");
  }
  return {};
}

base::Status check_opened(const OpenedDevice& device) {
  const bool extended = !device.identity.empty();
  if (device.device_id == kNoDevice || (extended && device.device_id == 0)) {
    return make_error(Errc::kProtocol, "open answer has device id {}, which is none",
                      device.device_id);
  }
  if (!sane_block_size(device.logical_block_bytes)) {
    return make_error(Errc::kProtocol,
                      "open answer has logical blocks of {} bytes: must be a power of two from "
                      "512 to {}",
                      device.logical_block_bytes, kBlockBytesMax);
  }
  if (!sane_block_size(device.physical_block_bytes) ||
      device.physical_block_bytes < device.logical_block_bytes) {
    return make_error(Errc::kProtocol,
                      "open answer has physical blocks of {} bytes: must be a power of two from "
                      "the logical {} to {}",
                      device.physical_block_bytes, device.logical_block_bytes, kBlockBytesMax);
  }
  if (device.max_io_bytes < device.logical_block_bytes) {
    return make_error(Errc::kProtocol, "open answer allows I/O of {} bytes: at least one block",
                      device.max_io_bytes);
  }
  if (device.size_bytes % device.logical_block_bytes != 0) {
    return make_error(Errc::kProtocol, "open answer has {} bytes: must be whole blocks of {}",
                      device.size_bytes, device.logical_block_bytes);
  }
  return {};
}

}  // namespace

std::string_view to_string(AccessMode mode) {
  switch (mode) {
    case AccessMode::kReadOnly:
      return "ro";
    case AccessMode::kReadWrite:
      return "rw";
    case AccessMode::kMigration:
      return "migration";
  }
  return "?";
}

Result<MessageType> request_type(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof(header)) {
    return make_error(Errc::kProtocol, "user header of {} bytes: at least {}", bytes.size(),
                      sizeof(header));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto type = static_cast<MessageType>(static_cast<uint16_t>(header.type));
  switch (type) {
    case MessageType::kSessionInfo:
    case MessageType::kOpen:
    case MessageType::kIo:
    case MessageType::kClose:
    case MessageType::kNews:
      return type;
    case MessageType::kSessionInfoAnswer:
    case MessageType::kOpenAnswer:
    case MessageType::kNewsAnswer:
      break;
  }
  return make_error(Errc::kProtocol, "message type {}: a request has 0, 2, 4, 5 or 64",
                    static_cast<unsigned>(header.type));
}

Result<SessionInfo> parse_session_info(std::span<const std::byte> bytes, MessageType type) {
  BRAID_TRY(SessionInfo info, copy_message<SessionInfo>(bytes, type, "session info"));
  if (info.version == 0) return make_error(Errc::kProtocol, "session info has version 0");
  return info;
}

Result<Close> parse_close(std::span<const std::byte> bytes) {
  return copy_message<Close>(bytes, MessageType::kClose, "close");
}

Result<OpenRequest> parse_open(std::span<const std::byte> bytes) {
  OpenRequest request;
  if (bytes.size() == sizeof(ClaimingOpen)) {
    BRAID_CHECK(read_claim(bytes.subspan(sizeof(Open)), request));
    bytes = bytes.first(sizeof(Open));
  }
  BRAID_TRY(const Open open, copy_message<Open>(bytes, MessageType::kOpen, "open"));
  if (open.access_mode > static_cast<uint8_t>(AccessMode::kMigration)) {
    return make_error(Errc::kProtocol,
                      "open message has access mode {}: must be 0 (ro), 1 (rw) or 2 (migration)",
                      open.access_mode);
  }
  const auto end = std::find(open.name.begin(), open.name.end(), '\0');
  if (end == open.name.end()) {
    return make_error(Errc::kProtocol, "open message's name has no end within {} bytes",
                      kNameBytes);
  }
  if (end == open.name.begin()) {
    return make_error(Errc::kProtocol, "open message has an empty name");
  }
  request.mode = static_cast<AccessMode>(open.access_mode);
  request.name = std::string(open.name.begin(), end);
  return request;
}

Result<Open> make_open(std::string_view name, AccessMode mode) {
  if (name.empty()) return make_error(Errc::kInvalid, "the device's name is empty");
  if (name.size() >= kNameBytes || name.find('\0') != std::string_view::npos) {
    return make_error(Errc::kInvalid,
                      "the device's name has {} bytes: at most {}, none of them zero", name.size(),
                      kNameBytes - 1);
  }
  Open open;
  open.header.type = static_cast<uint16_t>(MessageType::kOpen);
  open.access_mode = static_cast<uint8_t>(mode);
  std::copy(name.begin(), name.end(), open.name.begin());
  return open;
}

ClaimingOpen make_claim(const Open& open, uint64_t tenure, bool remap) {
  ClaimingOpen message{open, {}};
  message.claim.version = kClaimVersion;
  message.claim.length_bytes = static_cast<uint16_t>(sizeof(OpenClaim));
  message.claim.flags = remap ? kClaimRemap : 0;
  message.claim.tenure = tenure;
  return message;
}

Result<uint64_t> parse_news(std::span<const std::byte> bytes) {
  BRAID_TRY(const News news, copy_message<News>(bytes, MessageType::kNews, "news"));
  return uint64_t{news.seen};
}

News make_news(uint64_t seen) {
  News news{};
  news.header.type = static_cast<uint16_t>(MessageType::kNews);
  news.seen = seen;
  return news;
}

namespace {

Result<DeviceNews> read_item(const NewsItem& item) {
  const auto kind = static_cast<NewsKind>(item.kind);
  if (item.device_id == 0 || (kind != NewsKind::kResized && kind != NewsKind::kClosed)) {
    return make_error(
        Errc::kProtocol,
        "news of device id {} and kind {}: must be an id and 1 (resized) or 2 (closed)",
        static_cast<uint32_t>(item.device_id), item.kind);
  }
  if (item.size_sectors > UINT64_MAX / kSectorBytes) {
    return make_error(Errc::kProtocol, "news of {} sectors: more bytes than 64 bits hold",
                      static_cast<uint64_t>(item.size_sectors));
  }
  return DeviceNews{item.device_id, kind, item.size_sectors * kSectorBytes};
}

}  // namespace

Result<NewsList> parse_news_answer(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(NewsAnswer)) {
    return make_error(Errc::kProtocol, "news answer of {} bytes: at least {}", bytes.size(),
                      sizeof(NewsAnswer));
  }
  BRAID_TRY(const NewsAnswer answer,
            copy_message<NewsAnswer>(bytes.first(sizeof(NewsAnswer)), MessageType::kNewsAnswer,
                                     "news answer"));
  bytes = bytes.subspan(sizeof(NewsAnswer));
  if (answer.count > kNewsItemsMax || answer.count > bytes.size() / sizeof(NewsItem)) {
    return make_error(Errc::kProtocol, "news answer of {} items in {} bytes: at most {} that fit",
                      static_cast<uint32_t>(answer.count), bytes.size(), kNewsItemsMax);
  }
  NewsList news{answer.newest, {}};
  for (uint32_t i = 0; i < answer.count; ++i) {
    NewsItem item;
    std::memcpy(&item, bytes.data() + i * sizeof(item), sizeof(item));
    BRAID_TRY(const DeviceNews told, read_item(item));
    news.items.push_back(told);
  }
  return news;
}

std::vector<std::byte> make_news_answer(const NewsList& news) {
  BRAID_ASSERT(news.items.size() <= kNewsItemsMax);
  NewsAnswer answer{};
  answer.header.type = static_cast<uint16_t>(MessageType::kNewsAnswer);
  answer.count = static_cast<uint32_t>(news.items.size());
  answer.newest = news.newest;
  std::vector<std::byte> bytes;
  const auto append = [&](const auto& part) {
    const auto more = bytes_of(part);
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  append(answer);
  for (const DeviceNews& told : news.items) {
    NewsItem item{};
    item.device_id = told.device_id;
    item.kind = static_cast<uint8_t>(told.kind);
    item.size_sectors = told.size_bytes / kSectorBytes;
    append(item);
  }
  return bytes;
}

Result<OpenedDevice> parse_open_answer(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(OpenAnswer)) {
    return make_error(Errc::kProtocol, "open answer of {} bytes: at least {}", bytes.size(),
                      sizeof(OpenAnswer));
  }
  BRAID_TRY(const OpenAnswer answer,
            copy_message<OpenAnswer>(bytes.first(sizeof(OpenAnswer)), MessageType::kOpenAnswer,
                                     "open answer"));
  OpenedDevice device;
  if (bytes.size() >= sizeof(ExtendedOpenAnswer)) {
    BRAID_CHECK(read_extension(bytes.subspan(sizeof(OpenAnswer)), device));
  }
  if (answer.size_sectors > UINT64_MAX / kSectorBytes) {
    return make_error(Errc::kProtocol, "open answer has {} sectors: more bytes than 64 bits hold",
                      static_cast<uint64_t>(answer.size_sectors));
  }
  device.device_id = answer.device_id;
  device.size_bytes = answer.size_sectors * kSectorBytes;
  device.max_io_bytes =
      std::min<uint32_t>(answer.max_io_sectors, UINT32_MAX / kSectorBytes) * kSectorBytes;
  device.max_write_zeroes_bytes = uint64_t{answer.max_write_zeroes_sectors} * kSectorBytes;
  device.max_discard_bytes = uint64_t{answer.max_discard_sectors} * kSectorBytes;
  if (answer.secure_discard != 0) device.max_secure_erase_bytes = device.max_discard_bytes;
  device.discard_granularity_bytes = answer.discard_granularity_bytes;
  device.discard_alignment_bytes = answer.discard_alignment_bytes;
  device.physical_block_bytes = answer.physical_block_bytes;
  device.logical_block_bytes = answer.logical_block_bytes;
  device.force_unit_access = (answer.cache_policy & kCacheForceUnitAccess) != 0;
  device.write_cache = (answer.cache_policy & kCacheWriteBack) != 0;
  BRAID_CHECK(check_opened(device));
  return device;
}

OpenAnswer make_open_answer(const OpenedDevice& device) {
  BRAID_ASSERT(sane_block_size(device.logical_block_bytes) &&
               sane_block_size(device.physical_block_bytes));
  OpenAnswer answer;
  answer.header.type = static_cast<uint16_t>(MessageType::kOpenAnswer);
  answer.device_id = device.device_id;
  answer.size_sectors = device.size_bytes / kSectorBytes;
  answer.max_io_sectors = device.max_io_bytes / kSectorBytes;
  answer.max_write_zeroes_sectors = to_sectors(device.max_write_zeroes_bytes);
  answer.max_discard_sectors = to_sectors(device.max_discard_bytes);
  answer.discard_granularity_bytes = device.discard_granularity_bytes;
  answer.discard_alignment_bytes = device.discard_alignment_bytes;
  answer.secure_discard = device.max_secure_erase_bytes > 0 ? uint16_t{1} : uint16_t{0};
  answer.physical_block_bytes = static_cast<uint16_t>(device.physical_block_bytes);
  answer.logical_block_bytes = static_cast<uint16_t>(device.logical_block_bytes);
  answer.max_segments = uint16_t{128};  // as many as Linux's client would use; a chunk is one piece
  answer.cache_policy =
      static_cast<uint8_t>((device.force_unit_access ? kCacheForceUnitAccess : 0) |
                           (device.write_cache ? kCacheWriteBack : 0));
  return answer;
}

OpenExtension make_extension(const OpenedDevice& device) {
  OpenExtension extension = empty_extension();
  extension.incarnation = device.incarnation;
  extension.tenure = device.tenure;
  extension.identity = device.identity_hash;
  set_text(extension, device.identity);
  return extension;
}

ExtendedOpenAnswer make_refusal(int sys_errno, std::string_view why) {
  ExtendedOpenAnswer refusal{};
  refusal.answer.header.type = static_cast<uint16_t>(MessageType::kOpenAnswer);
  refusal.extension = empty_extension();
  refusal.extension.status = static_cast<uint32_t>(sys_errno);
  set_text(refusal.extension, why);
  return refusal;
}

const char* parse_io(std::span<const std::byte> bytes, Io& out) {
  if (bytes.size() != sizeof(Io) && bytes.size() != kIoBytesWithoutPriority) {
    return "an I/O message has 32 bytes, or 24 in version 1";
  }
  out = Io{};
  std::memcpy(&out, bytes.data(), bytes.size());
  if (out.header.type != static_cast<uint16_t>(MessageType::kIo)) return "not an I/O message";
  const uint32_t flags = out.operation_flags & ~kOperationMask;
  if ((flags & ~kFlagsAll) != 0) return "unknown flags";
  switch (operation_of(out)) {
    case Operation::kRead:
    case Operation::kWrite:
    case Operation::kDiscard:
    case Operation::kWriteZeroes:
    case Operation::kSecureErase:
      if (out.sector > UINT64_MAX / kSectorBytes) return "sector beyond 64 bits of bytes";
      return nullptr;
    case Operation::kFlush:
      return nullptr;
  }
  return "unknown operation";
}

uint16_t heeded_priority(uint16_t priority) {
  using base::IoPriorityClass;
  const auto of_class = [](IoPriorityClass is, unsigned level) {
    return static_cast<uint16_t>(static_cast<unsigned>(is) << base::kIoPriorityClassShift | level);
  };
  switch (static_cast<IoPriorityClass>(priority >> base::kIoPriorityClassShift)) {
    case IoPriorityClass::kRealTime:
      return of_class(IoPriorityClass::kBestEffort, 0);
    case IoPriorityClass::kBestEffort:
      return of_class(IoPriorityClass::kBestEffort, priority & base::kIoPriorityLevelMask);
    case IoPriorityClass::kIdle:
      return of_class(IoPriorityClass::kIdle, 0);
    case IoPriorityClass::kNone:
      break;
  }
  return 0;
}

std::array<uint8_t, 16> hash_identity(std::string_view identity) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(identity.data(), identity.size()));
  return std::to_array(canonical.digest);
}

}  // namespace braid::bnbd::wire
