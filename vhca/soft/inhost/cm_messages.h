// Messages of the in-host connection manager: what two processes of a host say to each other over
// the socket of a connection (the exchange is drawn in docs/in-host-wire.md).
//
// Each message is one datagram: header, fixed part by kind, private data. Little-endian, packed by
// construction, reserved bytes zero. parse_cm_message() is the only reader: pure, and total over
// all inputs. The version changes with any layout here or in layout.h or mr_table.h, and with what
// peers owe each other there (access.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "base/endian.h"
#include "base/result.h"
#include "vhca/soft/inhost/layout.h"

namespace braid::vhca::soft::inhost {

inline constexpr uint32_t kCmMagic = 0x48495242;  // "BRIH"
inline constexpr uint16_t kCmVersion = 5;
inline constexpr size_t kCmMessageMax = 512;

enum class CmKind : uint8_t {
  kRequest = 1,  // handles: MR table, inbound segment, event, send event if there are such
  kReply = 2,    // the same
  kReady = 3,
  kReject = 4,
  kDisconnect = 5,
  kSegment = 6,  // handle: the segment
  kRetire = 7,
};

enum class CmRejectReason : uint8_t {
  kUser = 1,      // the program said no; its private data follows
  kOverload = 2,  // too many requests wait already
  kInvalid = 3,   // the request breaks a rule of the peer
};

namespace cm_wire {

struct Header {
  base::le32 magic;
  base::le16 version;
  uint8_t kind;
  uint8_t handles;  // that came with the message
  base::le32 length;
};
static_assert(sizeof(Header) == 12 && std::has_unique_object_representations_v<Header>);

/// Of kRequest and kReply.
struct End {
  std::array<uint8_t, 16> device;
  base::le32 qp_number;
  base::le32 slots;
  base::le32 receives;
  base::le32 payload_bytes;
  base::le32 mr_capacity;
  uint8_t has_event;
  uint8_t has_heavy_fence;
  uint8_t retry_count;
  uint8_t rnr_retry_count;
  uint8_t ack_timeout;
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t private_length;
  uint8_t has_send_event;
  uint8_t shares_receives;
  uint8_t receive_keys;
  uint8_t reserved;
};
static_assert(sizeof(End) == 48 && std::has_unique_object_representations_v<End>);

struct Reject {
  uint8_t reason;
  uint8_t private_length;
  base::le16 reserved;
};
static_assert(sizeof(Reject) == 4 && std::has_unique_object_representations_v<Reject>);

/// Of kSegment and, with size 0, kRetire.
struct Segment {
  base::le32 id;
  base::le32 reserved;
  base::le64 size_bytes;
};
static_assert(sizeof(Segment) == 16 && std::has_unique_object_representations_v<Segment>);

}  // namespace cm_wire

inline constexpr size_t kRequestPrivateMax = 56;
inline constexpr size_t kReplyPrivateMax = 196;
inline constexpr size_t kRejectPrivateMax = 148;

using DeviceId = std::array<uint8_t, 16>;

/// What each end tells about itself.
struct CmEnd {
  DeviceId device{};            // random; names the device among those of its process
  uint32_t qp_number = 0;       // 24 bits, not 0
  Geometry geometry;            // of its inbound segment
  uint32_t mr_capacity = 0;     // entries of its MR table, a power of two
  bool has_event = false;       // of the receive CQ
  bool has_send_event = false;  // of the send CQ, if it is another one
  bool shares_receives = false;
  bool has_heavy_fence = false;
  uint8_t retry_count = 0;
  uint8_t rnr_retry_count = 0;
  uint8_t ack_timeout = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;

  size_t handles() const { return 2 + size_t{has_event} + size_t{has_send_event}; }
};

/// A segment that holds registered memory. Ids grow and are never used twice by a device.
struct CmSegment {
  uint32_t id = 0;
  uint64_t size_bytes = 0;
};

/// A message that keeps all rules. Only what belongs to its kind is set.
struct CmMessage {
  CmKind kind = CmKind::kReady;
  CmEnd end;
  CmRejectReason reason = CmRejectReason::kUser;
  CmSegment segment;
  std::vector<std::byte> private_data;
};

/// kProtocol, naming the field, its value and what would be right. `handles`: how many came with
/// the datagram.
base::Result<CmMessage> parse_cm_message(std::span<const std::byte> datagram, size_t handles);

/// The datagram of a message that keeps all rules.
std::vector<std::byte> encode_cm_message(const CmMessage& message);

}  // namespace braid::vhca::soft::inhost
