#include "vhca/soft/inhost/cm_messages.h"

#include <cstring>

namespace braid::vhca::soft::inhost {
namespace {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

constexpr uint32_t kMrCapacityMax = 1U << 20;
constexpr uint64_t kSegmentBytesMax = uint64_t{1} << 47;

/// Takes fixed structures off the front of a datagram.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  template <typename T>
  Status take(T& out, std::string_view what) {
    if (left_.size() < sizeof(T)) {
      return make_error(Errc::kProtocol, "connection message: {} bytes left for {}, which has {}",
                        left_.size(), what, sizeof(T));
    }
    std::memcpy(&out, left_.data(), sizeof(T));
    left_ = left_.subspan(sizeof(T));
    return {};
  }
  std::span<const std::byte> left() const { return left_; }

 private:
  std::span<const std::byte> left_;
};

Status check_range(std::string_view field, uint64_t value, uint64_t max) {
  if (value <= max) return {};
  return make_error(Errc::kProtocol, "connection message: {} is {}; at most {}", field, value, max);
}

Status take_private(const Reader& reader, size_t length, size_t max, CmMessage& message) {
  BRAID_CHECK(check_range("length of private data", length, max));
  if (reader.left().size() != length) {
    return make_error(Errc::kProtocol, "connection message: {} bytes of private data, {} announced",
                      reader.left().size(), length);
  }
  message.private_data.assign(reader.left().begin(), reader.left().end());
  return {};
}

Status check_end(const cm_wire::End& wire, const CmEnd& end) {
  if (end.qp_number == 0 || end.qp_number >= 1U << 24) {
    return make_error(Errc::kProtocol, "connection message: QP number {}; 1 to {}", end.qp_number,
                      (1U << 24) - 1);
  }
  BRAID_CHECK(check_range("receive_keys", wire.receive_keys, Geometry::kReceiveKeysMax));
  if (!end.geometry.valid()) {
    return make_error(Errc::kProtocol,
                      "connection message: an inbound segment of {} slots, {} receives, {} bytes; "
                      "each a power of two within bounds",
                      end.geometry.slots, end.geometry.receives, end.geometry.payload_bytes);
  }
  if (!std::has_single_bit(end.mr_capacity) || end.mr_capacity > kMrCapacityMax) {
    return make_error(Errc::kProtocol,
                      "connection message: an MR table of {} entries; a power of two up to {}",
                      end.mr_capacity, kMrCapacityMax);
  }
  BRAID_CHECK(check_range("has_event", wire.has_event, 1));
  BRAID_CHECK(check_range("has_send_event", wire.has_send_event, 1));
  BRAID_CHECK(check_range("shares_receives", wire.shares_receives, 1));
  BRAID_CHECK(check_range("reserved", wire.reserved, 0));
  BRAID_CHECK(check_range("has_heavy_fence", wire.has_heavy_fence, 1));
  BRAID_CHECK(check_range("retry_count", end.retry_count, 7));
  BRAID_CHECK(check_range("rnr_retry_count", end.rnr_retry_count, 7));
  return check_range("ack_timeout", end.ack_timeout, 31);
}

Status parse_end(Reader& reader, CmMessage& message) {
  cm_wire::End wire{};
  BRAID_CHECK(reader.take(wire, "the description of an end"));
  CmEnd& end = message.end;
  end.device = wire.device;
  end.qp_number = wire.qp_number;
  end.geometry = {wire.slots, wire.receives, wire.payload_bytes, wire.receive_keys};
  end.mr_capacity = wire.mr_capacity;
  end.has_event = wire.has_event != 0;
  end.has_send_event = wire.has_send_event != 0;
  end.shares_receives = wire.shares_receives != 0;
  end.has_heavy_fence = wire.has_heavy_fence != 0;
  end.retry_count = wire.retry_count;
  end.rnr_retry_count = wire.rnr_retry_count;
  end.ack_timeout = wire.ack_timeout;
  end.responder_resources = wire.responder_resources;
  end.initiator_depth = wire.initiator_depth;
  BRAID_CHECK(check_end(wire, end));
  const bool request = message.kind == CmKind::kRequest;
  return take_private(reader, wire.private_length, request ? kRequestPrivateMax : kReplyPrivateMax,
                      message);
}

Status parse_reject(Reader& reader, CmMessage& message) {
  cm_wire::Reject wire{};
  BRAID_CHECK(reader.take(wire, "a rejection"));
  if (wire.reason < 1 || wire.reason > 3 || wire.reserved != 0) {
    return make_error(Errc::kProtocol,
                      "connection message: rejected for reason {}, reserved {}; "
                      "reasons are 1 to 3, reserved is 0",
                      wire.reason, uint16_t{wire.reserved});
  }
  message.reason = static_cast<CmRejectReason>(wire.reason);
  return take_private(reader, wire.private_length, kRejectPrivateMax, message);
}

Status parse_segment(Reader& reader, CmMessage& message) {
  cm_wire::Segment wire{};
  BRAID_CHECK(reader.take(wire, "a segment"));
  message.segment = {.id = wire.id, .size_bytes = wire.size_bytes};
  const bool retire = message.kind == CmKind::kRetire;
  if (message.segment.id == UINT32_MAX || wire.reserved != 0 ||
      (message.segment.size_bytes == 0) != retire) {
    return make_error(Errc::kProtocol,
                      "connection message: segment {} of {} bytes, reserved {}; "
                      "an announced one has bytes, a retired one none, reserved is 0",
                      message.segment.id, message.segment.size_bytes, uint32_t{wire.reserved});
  }
  BRAID_CHECK(check_range("size of a segment", message.segment.size_bytes, kSegmentBytesMax));
  return take_private(reader, 0, 0, message);
}

Status parse_body(Reader& reader, CmMessage& message) {
  switch (message.kind) {
    case CmKind::kRequest:
    case CmKind::kReply:
      return parse_end(reader, message);
    case CmKind::kReject:
      return parse_reject(reader, message);
    case CmKind::kSegment:
    case CmKind::kRetire:
      return parse_segment(reader, message);
    case CmKind::kReady:
    case CmKind::kDisconnect:
      return take_private(reader, 0, 0, message);
  }
  return make_error(Errc::kProtocol, "connection message: kind {}; 1 to 7",
                    static_cast<unsigned>(message.kind));
}

size_t handles_of(const CmMessage& message) {
  switch (message.kind) {
    case CmKind::kRequest:
    case CmKind::kReply:
      return message.end.handles();
    case CmKind::kSegment:
      return 1;
    default:
      return 0;
  }
}

template <typename T>
void append(std::vector<std::byte>& out, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_end(std::vector<std::byte>& out, const CmMessage& message) {
  const CmEnd& end = message.end;
  cm_wire::End wire{};
  wire.device = end.device;
  wire.qp_number = end.qp_number;
  wire.slots = end.geometry.slots;
  wire.receives = end.geometry.receives;
  wire.payload_bytes = end.geometry.payload_bytes;
  wire.receive_keys = static_cast<uint8_t>(end.geometry.receive_keys);
  wire.mr_capacity = end.mr_capacity;
  wire.has_event = end.has_event ? 1 : 0;
  wire.has_send_event = end.has_send_event ? 1 : 0;
  wire.shares_receives = end.shares_receives ? 1 : 0;
  wire.has_heavy_fence = end.has_heavy_fence ? 1 : 0;
  wire.retry_count = end.retry_count;
  wire.rnr_retry_count = end.rnr_retry_count;
  wire.ack_timeout = end.ack_timeout;
  wire.responder_resources = end.responder_resources;
  wire.initiator_depth = end.initiator_depth;
  wire.private_length = static_cast<uint8_t>(message.private_data.size());
  append(out, wire);
}

}  // namespace

Result<CmMessage> parse_cm_message(std::span<const std::byte> datagram, size_t handles) {
  Reader reader(datagram);
  cm_wire::Header header{};
  BRAID_CHECK(reader.take(header, "the header"));
  if (header.magic != kCmMagic) {
    return make_error(Errc::kProtocol, "connection message: magic {:#x}; {:#x} is Braid's",
                      uint32_t{header.magic}, kCmMagic);
  }
  if (header.version != kCmVersion) {
    return make_error(Errc::kProtocol,
                      "connection message: version {}; this build speaks {}: run the same build on "
                      "both sides",
                      uint16_t{header.version}, kCmVersion);
  }
  if (header.length != datagram.size() || header.handles != handles) {
    return make_error(Errc::kProtocol,
                      "connection message: {} bytes and {} handles came, {} and {} were announced",
                      datagram.size(), handles, uint32_t{header.length}, header.handles);
  }
  CmMessage message;
  message.kind = static_cast<CmKind>(header.kind);
  BRAID_CHECK(parse_body(reader, message));
  if (handles_of(message) != handles) {
    return make_error(Errc::kProtocol, "connection message: kind {} with {} handles; it has {}",
                      header.kind, handles, handles_of(message));
  }
  return message;
}

std::vector<std::byte> encode_cm_message(const CmMessage& message) {
  std::vector<std::byte> out;
  cm_wire::Header header{};
  header.magic = kCmMagic;
  header.version = kCmVersion;
  header.kind = static_cast<uint8_t>(message.kind);
  header.handles = static_cast<uint8_t>(handles_of(message));
  header.length = 0;
  append(out, header);
  switch (message.kind) {
    case CmKind::kRequest:
    case CmKind::kReply:
      append_end(out, message);
      break;
    case CmKind::kReject:
      append(out, cm_wire::Reject{static_cast<uint8_t>(message.reason),
                                  static_cast<uint8_t>(message.private_data.size()), 0});
      break;
    case CmKind::kSegment:
    case CmKind::kRetire:
      append(out, cm_wire::Segment{message.segment.id, 0, message.segment.size_bytes});
      break;
    default:
      break;
  }
  out.insert(out.end(), message.private_data.begin(), message.private_data.end());
  header.length = static_cast<uint32_t>(out.size());
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

}  // namespace braid::vhca::soft::inhost
