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
constexpr uint32_t kNbdEoverflow = 75;
constexpr uint32_t kNbdEnotsup = 95;

constexpr uint64_t kHasFlags = 1 << 0;
constexpr uint64_t kReadOnly = 1 << 1;
constexpr uint64_t kSendFlush = 1 << 2;
constexpr uint64_t kSendFua = 1 << 3;
constexpr uint64_t kRotational = 1 << 4;
constexpr uint64_t kSendTrim = 1 << 5;
constexpr uint64_t kSendWriteZeroes = 1 << 6;
constexpr uint64_t kSendDontFragment = 1 << 7;
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
                 uint32_t chunk_max_bytes, NbdTerms terms) {
  const bool zeroes = verdict.op == BlockOp::kWriteZeroes;
  const bool changes = verdict.op == BlockOp::kWrite || verdict.op == BlockOp::kDiscard || zeroes;
  const bool transfers = verdict.op == BlockOp::kRead || verdict.op == BlockOp::kWrite;

  const bool whole = verdict.op == BlockOp::kRead && terms.structured;
  const auto allowed = static_cast<uint16_t>(kNbdFlagFua | (zeroes ? kNbdFlagNoHole : 0) |
                                             (whole ? kNbdFlagDontFragment : 0));
  if ((flags & ~allowed) != 0) return refuse(verdict, kNbdEinval, "unknown command flag");
  if (changes && (info.read_only || terms.read_only)) {
    return refuse(verdict, kNbdEperm, "the device is read-only");
  }
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
    if (transfers && verdict.length_bytes > kNbdTransferMax) {
      return refuse(verdict, kNbdEinval, "longer than the largest transfer");
    }
    if ((flags & kNbdFlagDontFragment) != 0 && verdict.length_bytes > chunk_max_bytes) {
      return refuse(verdict, kNbdEoverflow, "too long for one chunk");
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
                             const BlockInfo& info, uint32_t chunk_max_bytes, NbdTerms terms) {
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
  verdict = judge(verdict, flags, info, chunk_max_bytes, terms);
  // FUA is defined, and without meaning, for the other commands.
  const bool changes = verdict.op == BlockOp::kWrite || verdict.op == BlockOp::kWriteZeroes ||
                       verdict.op == BlockOp::kDiscard;
  verdict.force_unit_access = changes && (flags & kNbdFlagFua) != 0;
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

namespace {

/// Puts parts one behind the other.
class HeadWriter {
 public:
  explicit HeadWriter(NbdAnswerHead& head) : head_(head) { head_.length = 0; }
  template <typename T>
  void put(const T& part) {
    std::memcpy(head_.bytes.data() + head_.length, &part, sizeof(part));
    head_.length += sizeof(part);
  }
  void put_text(std::string_view text) {
    std::memcpy(head_.bytes.data() + head_.length, text.data(), text.size());
    head_.length += text.size();
  }

 private:
  NbdAnswerHead& head_;
};

constexpr size_t kErrorFields = sizeof(base::be32) + sizeof(base::be16);

}  // namespace

void make_nbd_answer(const NbdVerdict& verdict, const NbdPart& part, uint32_t error,
                     std::string_view words, bool structured, NbdAnswerHead& head) {
  HeadWriter writer(head);
  const bool read =
      verdict.op == BlockOp::kRead && error == 0 && verdict.kind == NbdVerdict::Kind::kRun;
  if (!structured || (error == 0 && !read)) {
    NbdReply reply;
    reply.magic = kNbdReplyMagic;
    reply.error = error;
    reply.cookie = verdict.cookie;
    return writer.put(reply);
  }
  NbdChunk chunk;
  chunk.magic = kNbdChunkMagic;
  chunk.flags = kNbdChunkDone;
  chunk.cookie = verdict.cookie;
  if (read) {
    chunk.flags = part.last ? kNbdChunkDone : 0;
    chunk.type = kNbdChunkOffsetData;
    chunk.length_bytes = static_cast<uint32_t>(sizeof(base::be64) + part.length_bytes);
    writer.put(chunk);
    return writer.put(base::be64(part.offset_bytes));
  }
  words = words.substr(0, NbdAnswerHead::kMax - sizeof(chunk) - kErrorFields);
  chunk.type = kNbdChunkError;
  chunk.length_bytes = static_cast<uint32_t>(kErrorFields + words.size());
  writer.put(chunk);
  writer.put(base::be32(error));
  writer.put(base::be16(static_cast<uint16_t>(words.size())));
  writer.put_text(words);
}

uint16_t nbd_export_flags(const BlockInfo& info, NbdTerms terms) {
  BlockInfo shown = info;
  shown.read_only = info.read_only || terms.read_only;
  uint64_t flags = nbd_transmission_flags(shown, /*multi_conn=*/true) | kSendFlush;
  // Without a cache every write is durable.
  if (info.fua || !info.write_cache) flags |= kSendFua;
  if (shown.read_only) flags &= ~(kSendTrim | kSendWriteZeroes);
  if (terms.structured) flags |= kSendDontFragment;
  return static_cast<uint16_t>(flags);
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
