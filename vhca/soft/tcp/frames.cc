#include "vhca/soft/tcp/frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "vhca/soft/device.h"
#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft::tcp {
namespace {

using base::Errc;
using base::make_error;
using base::Result;

constexpr uint32_t kQpNumberMax = 0xffffff;

bool known_opcode(uint8_t opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return true;
    default:
      return false;
  }
}

std::optional<std::string> validate_request(const FrameHeader& header) {
  if (!known_opcode(header.opcode)) return fmt::format("unknown opcode {}", header.opcode);
  const auto opcode = static_cast<ibv_wr_opcode>(header.opcode);
  if (header.requested > kMaxMessageBytes) {
    return fmt::format("a request of {} bytes; at most {}", uint32_t{header.requested},
                       kMaxMessageBytes);
  }
  if (is_atomic(opcode) && header.requested != kAtomicBytes) {
    return fmt::format("an atomic of {} bytes", uint32_t{header.requested});
  }
  if (header.length != bytes_behind(opcode, header.requested)) {
    return fmt::format("{} bytes behind a request of {}, opcode {}", uint64_t{header.length},
                       uint32_t{header.requested}, header.opcode);
  }
  return std::nullopt;
}

/// The most that may follow the header of what is no request.
uint64_t length_max(FrameKind kind) {
  switch (kind) {
    case FrameKind::kConnect:
      return sizeof(CmBody) + kConnectPrivateMax;
    case FrameKind::kAccept:
      return kCmBytesMax;
    case FrameKind::kReject:
      return sizeof(CmBody) + kRejectPrivateMax;
    case FrameKind::kResponse:
      return kMaxMessageBytes;
    default:
      return 0;
  }
}

FrameHeader header_at(std::span<const std::byte> bytes) {
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

bool of_cm(FrameKind kind) {
  return kind == FrameKind::kConnect || kind == FrameKind::kAccept || kind == FrameKind::kReject;
}

}  // namespace

uint64_t bytes_behind(ibv_wr_opcode opcode, uint32_t length) {
  if (is_atomic(opcode)) return sizeof(Operands);
  return is_read(opcode) ? 0 : length;
}

std::optional<std::string> validate(const FrameHeader& header) {
  if (header.magic != kFrameMagic) return fmt::format("magic {:#x}", uint32_t{header.magic});
  if (header.version != kFrameVersion) {
    return fmt::format("version {}; this is {}", header.version, kFrameVersion);
  }
  if (header.kind == 0 || header.kind > kFrameKindMax) {
    return fmt::format("unknown kind {}", header.kind);
  }
  if ((header.flags & ~kFlagsKnown) != 0) return fmt::format("unknown flags {:#x}", header.flags);
  if (header.reserved[0] != 0 || header.reserved[1] != 0 || header.reserved2 != 0) {
    return "reserved bytes that are not zero";
  }
  if (header.rnr_timer > 31) return fmt::format("RNR timer {}", header.rnr_timer);
  const auto kind = static_cast<FrameKind>(header.kind);
  if (kind == FrameKind::kError &&
      (header.status == IBV_WC_SUCCESS || header.status > IBV_WC_GENERAL_ERR)) {
    return fmt::format("status {} of an error", header.status);
  }
  if (kind == FrameKind::kPort && header.status > 1) {
    return fmt::format("status {} of a port; 0 or 1", header.status);
  }
  if (kind == FrameKind::kRequest) return validate_request(header);
  if (header.length > length_max(kind)) {
    return fmt::format("{} bytes behind a frame of kind {}; at most {}", uint64_t{header.length},
                       header.kind, length_max(kind));
  }
  return std::nullopt;
}

Request request_of(const FrameHeader& header) {
  return {.opcode = static_cast<ibv_wr_opcode>(header.opcode),
          .solicited = (header.flags & kFlagSolicited) != 0,
          .signaled = (header.flags & kFlagSignaled) != 0,
          .imm = header.imm,
          .rkey = header.rkey,
          .remote_address = header.remote_address,
          .length = header.requested,
          .sequence = header.sequence,
          .pieces = {}};
}

std::vector<std::byte> encode_cm(FrameKind kind, uint32_t epoch, uint32_t qp_number,
                                 std::span<const std::byte> private_data, RejectReason reason) {
  FrameHeader header;
  header.magic = kFrameMagic;
  header.version = kFrameVersion;
  header.kind = static_cast<uint8_t>(kind);
  header.length = sizeof(CmBody) + private_data.size();
  header.epoch = epoch;
  header.status = kind == FrameKind::kReject ? static_cast<uint8_t>(reason) : uint8_t{0};
  CmBody body;
  body.qp_number = qp_number;
  body.private_bytes = static_cast<uint16_t>(private_data.size());
  std::vector<std::byte> frame(sizeof header + sizeof body + private_data.size());
  std::memcpy(frame.data(), &header, sizeof header);
  std::memcpy(frame.data() + sizeof header, &body, sizeof body);
  std::copy(private_data.begin(), private_data.end(),
            frame.begin() + static_cast<ptrdiff_t>(sizeof header + sizeof body));
  return frame;
}

Result<size_t> cm_frame_bytes(std::span<const std::byte> bytes) {
  const FrameHeader header = header_at(bytes);
  if (const auto wrong = validate(header); wrong.has_value()) {
    return make_error(Errc::kProtocol, "a frame of the TCP wire has {}", *wrong);
  }
  if (!of_cm(static_cast<FrameKind>(header.kind)) || header.length < sizeof(CmBody)) {
    return make_error(Errc::kProtocol, "a frame of kind {} and {} bytes while connecting",
                      header.kind, uint64_t{header.length});
  }
  return sizeof header + static_cast<size_t>(header.length);
}

Result<Cm> parse_cm(std::span<const std::byte> frame) {
  if (frame.size() < sizeof(FrameHeader)) {
    return make_error(Errc::kProtocol, "{} bytes are no frame of the TCP wire", frame.size());
  }
  BRAID_TRY(const size_t bytes, cm_frame_bytes(frame));
  if (bytes != frame.size()) {
    return make_error(Errc::kProtocol, "a frame says that it has {} bytes and has {}", bytes,
                      frame.size());
  }
  const FrameHeader header = header_at(frame);
  CmBody body;
  std::memcpy(&body, frame.data() + sizeof header, sizeof body);
  const std::span<const std::byte> rest = frame.subspan(sizeof header + sizeof body);
  if (body.private_bytes != rest.size() || body.reserved != 0 || body.qp_number > kQpNumberMax) {
    return make_error(Errc::kProtocol,
                      "QP number {:#x} and {} bytes of private data, of which {} came",
                      uint32_t{body.qp_number}, uint16_t{body.private_bytes}, rest.size());
  }
  Cm cm;
  cm.kind = static_cast<FrameKind>(header.kind);
  if (cm.kind == FrameKind::kReject) {
    if (header.status > static_cast<uint8_t>(RejectReason::kInvalid)) {
      return make_error(Errc::kProtocol, "unknown reason {} of a rejection", header.status);
    }
    cm.reason = static_cast<RejectReason>(header.status);
  }
  cm.epoch = header.epoch;
  cm.qp_number = body.qp_number;
  cm.private_data.assign(rest.begin(), rest.end());
  const auto again = encode_cm(cm.kind, cm.epoch, cm.qp_number, cm.private_data, cm.reason);
  if (!std::equal(again.begin(), again.end(), frame.begin(), frame.end())) {
    return make_error(Errc::kProtocol, "fields that mean nothing while connecting are not zero");
  }
  return cm;
}

}  // namespace braid::vhca::soft::tcp
