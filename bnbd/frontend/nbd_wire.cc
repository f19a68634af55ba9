#include "bnbd/frontend/nbd_wire.h"

#include <cstring>

namespace braid::bnbd {

using base::Errc;

namespace {

// The protocol's numbers: those of Linux/x86, whatever the machine.
constexpr uint32_t kNbdEperm = 1;
constexpr uint32_t kNbdEio = 5;
constexpr uint32_t kNbdEnomem = 12;
constexpr uint32_t kNbdEinval = 22;
constexpr uint32_t kNbdEnospc = 28;
constexpr uint32_t kNbdEnotsup = 95;

constexpr uint64_t kHasFlags = 1 << 0;
constexpr uint64_t kReadOnly = 1 << 1;
constexpr uint64_t kSendFlush = 1 << 2;
constexpr uint64_t kSendFua = 1 << 3;
constexpr uint64_t kRotational = 1 << 4;
constexpr uint64_t kSendTrim = 1 << 5;
constexpr uint64_t kSendWriteZeroes = 1 << 6;
constexpr uint64_t kCanMultiConn = 1 << 8;

NbdVerdict refuse(NbdVerdict verdict, uint32_t error, const char* reason) {
  verdict.kind = NbdVerdict::Kind::kRefuse;
  verdict.error = error;
  verdict.reason = reason;
  return verdict;
}

/// Sets the operation; false for a command that is not known.
bool set_operation(NbdCommand command, NbdVerdict& verdict) {
  switch (command) {
    case NbdCommand::kRead:
      verdict.op = BlockOp::kRead;
      return true;
    case NbdCommand::kWrite:
      verdict.op = BlockOp::kWrite;
      return true;
    case NbdCommand::kFlush:
      verdict.op = BlockOp::kFlush;
      return true;
    case NbdCommand::kTrim:
      verdict.op = BlockOp::kDiscard;
      return true;
    case NbdCommand::kWriteZeroes:
      verdict.op = BlockOp::kWriteZeroes;
      return true;
    case NbdCommand::kDisconnect:
      break;
  }
  return false;
}

/// The rules of one operation by the device. Order matters to clients: EPERM for a read-only
/// device, then what is not supported, then the range.
NbdVerdict judge(NbdVerdict verdict, uint16_t flags, const BlockInfo& info,
                 uint32_t transfer_max_bytes) {
  const bool zeroes = verdict.op == BlockOp::kWriteZeroes;
  const bool changes = verdict.op == BlockOp::kWrite || verdict.op == BlockOp::kDiscard || zeroes;
  const bool transfers = verdict.op == BlockOp::kRead || verdict.op == BlockOp::kWrite;

  const auto allowed = static_cast<uint16_t>(kNbdFlagFua | (zeroes ? kNbdFlagNoHole : 0));
  if ((flags & ~allowed) != 0) return refuse(verdict, kNbdEinval, "unknown command flag");
  if (changes && info.read_only) return refuse(verdict, kNbdEperm, "the device is read-only");
  if (verdict.op == BlockOp::kDiscard && info.max_discard_bytes == 0) {
    return refuse(verdict, kNbdEnotsup, "the device cannot discard");
  }
  if (zeroes && info.max_write_zeroes_bytes == 0) {
    return refuse(verdict, kNbdEnotsup, "the device cannot write zeroes");
  }
  if (verdict.op == BlockOp::kFlush) {
    if (verdict.offset_bytes != 0 || verdict.length_bytes != 0) {
      return refuse(verdict, kNbdEinval, "a flush has neither offset nor length");
    }
  } else {
    const uint64_t block = info.logical_block_bytes;
    if (verdict.length_bytes == 0) return refuse(verdict, kNbdEinval, "no length");
    if (verdict.length_bytes % block != 0 || verdict.offset_bytes % block != 0) {
      return refuse(verdict, kNbdEinval, "not a multiple of the logical block");
    }
    if (transfers && verdict.length_bytes > transfer_max_bytes) {
      return refuse(verdict, kNbdEinval, "longer than the largest transfer");
    }
    if (verdict.length_bytes > info.size_bytes ||
        verdict.offset_bytes > info.size_bytes - verdict.length_bytes) {
      return refuse(verdict, changes ? kNbdEnospc : kNbdEinval, "past the end of the device");
    }
  }
  verdict.kind = NbdVerdict::Kind::kRun;
  return verdict;
}

}  // namespace

NbdVerdict parse_nbd_request(std::span<const std::byte, sizeof(NbdRequest)> bytes,
                             const BlockInfo& info, uint32_t transfer_max_bytes) {
  NbdRequest request;
  std::memcpy(&request, bytes.data(), sizeof(request));
  NbdVerdict verdict;
  if (request.magic != kNbdRequestMagic) {
    verdict.reason = "wrong magic in a request";
    return verdict;
  }
  verdict.cookie = request.cookie;
  verdict.offset_bytes = request.offset_bytes;
  verdict.length_bytes = request.length_bytes;

  const auto command = static_cast<NbdCommand>(static_cast<uint16_t>(request.command));
  const uint16_t flags = request.flags;
  if (command == NbdCommand::kDisconnect) {
    verdict.kind = NbdVerdict::Kind::kDisconnect;
    return verdict;
  }
  if (command == NbdCommand::kWrite) verdict.payload_bytes = request.length_bytes;
  if (!set_operation(command, verdict)) return refuse(verdict, kNbdEinval, "unknown command");
  verdict.no_unmap = verdict.op == BlockOp::kWriteZeroes && (flags & kNbdFlagNoHole) != 0;
  verdict = judge(verdict, flags, info, transfer_max_bytes);
  // FUA is defined, and without meaning, for the other commands.
  const bool writes = verdict.op == BlockOp::kWrite || verdict.op == BlockOp::kWriteZeroes;
  verdict.force_unit_access = writes && (flags & kNbdFlagFua) != 0;
  return verdict;
}

uint32_t nbd_error(Errc status) {
  switch (status) {
    case Errc::kOk:
      return 0;
    case Errc::kReadOnly:
    case Errc::kPermission:
      return kNbdEperm;
    case Errc::kNoMemory:
      return kNbdEnomem;
    case Errc::kInvalid:
    case Errc::kOutOfRange:
      return kNbdEinval;
    case Errc::kNoSpace:
      return kNbdEnospc;
    case Errc::kNotSupported:
      return kNbdEnotsup;
    default:
      return kNbdEio;
  }
}

uint64_t nbd_transmission_flags(const BlockInfo& info, bool multi_conn) {
  uint64_t flags = kHasFlags;
  if (info.read_only) flags |= kReadOnly;
  if (info.write_cache) flags |= kSendFlush;
  // Without a cache every write is durable; the kernel asks for FUA only of a device with a cache.
  if (info.write_cache && info.fua) flags |= kSendFua;
  if (info.rotational) flags |= kRotational;
  if (info.max_discard_bytes != 0) flags |= kSendTrim;
  if (info.max_write_zeroes_bytes != 0) flags |= kSendWriteZeroes;
  if (multi_conn) flags |= kCanMultiConn;
  return flags;
}

}  // namespace braid::bnbd
