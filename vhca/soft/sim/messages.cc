#include "vhca/soft/sim/messages.h"

#include <cstring>

#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft::sim {
namespace {

constexpr uint32_t kQpNumberMax = 0xffffff;

void append(std::vector<std::byte>& message, const void* bytes, size_t count) {
  const auto* const from = static_cast<const std::byte*>(bytes);
  message.insert(message.end(), from, from + count);
}

/// A message of a header, with room for `extra` bytes that the caller appends.
template <typename Header>
void begin_message(std::vector<std::byte>& message, const Header& header, size_t extra) {
  message.clear();
  message.reserve(sizeof(header) + extra);
  append(message, &header, sizeof(header));
}

template <typename Header>
std::optional<Header> header_of(std::span<const std::byte> message) {
  if (message.size() < sizeof(Header)) return std::nullopt;
  Header header;
  std::memcpy(&header, message.data(), sizeof(header));
  return header;
}

size_t bytes_behind_header(ibv_wr_opcode opcode, uint32_t length) {
  if (is_atomic(opcode)) return sizeof(AtomicOperands);
  return is_read(opcode) ? 0 : length;
}

}  // namespace

std::vector<std::byte> encode_cm(Kind kind, uint32_t qp_number,
                                 std::span<const std::byte> private_data, RejectReason reason) {
  CmHeader header;
  header.kind = static_cast<uint8_t>(kind);
  header.reason = static_cast<uint8_t>(reason);
  header.qp_number = qp_number;
  std::vector<std::byte> message;
  begin_message(message, header, private_data.size());
  append(message, private_data.data(), private_data.size());
  return message;
}

std::optional<Cm> parse_cm(std::span<const std::byte> message) {
  const std::optional<CmHeader> header = header_of<CmHeader>(message);
  if (!header || header->qp_number > kQpNumberMax) return std::nullopt;
  const auto kind = static_cast<Kind>(header->kind);
  if (kind != Kind::kConnect && kind != Kind::kReply && kind != Kind::kReject) return std::nullopt;
  if (header->reason > static_cast<uint8_t>(RejectReason::kBacklog)) return std::nullopt;
  return Cm{kind, static_cast<RejectReason>(header->reason), header->qp_number,
            message.subspan(sizeof(CmHeader))};
}

size_t operation_bytes(const Request& request) {
  return sizeof(OperationHeader) + bytes_behind_header(request.opcode, request.length);
}

void encode_operation(const Request& request, std::vector<std::byte>& out) {
  OperationHeader header;
  header.kind = static_cast<uint8_t>(Kind::kOperation);
  header.opcode = static_cast<uint8_t>(request.opcode);
  header.solicited = request.solicited ? 1 : 0;
  header.imm = request.imm;
  header.rkey = request.rkey;
  header.length = request.length;
  header.remote_address = request.remote_address;
  header.sequence = request.sequence;
  begin_message(out, header, bytes_behind_header(request.opcode, request.length));
  if (is_atomic(request.opcode)) {
    AtomicOperands operands;
    operands.compare_add = request.compare_add;
    operands.swap = request.swap;
    append(out, &operands, sizeof(operands));
  }
  if (returns_data(request.opcode)) return;
  for (const Piece& piece : request.pieces)
    if (piece.length > 0) append(out, piece.address, piece.length);
}

std::optional<Operation> parse_operation(std::span<const std::byte> message) {
  const std::optional<OperationHeader> header = header_of<OperationHeader>(message);
  if (!header || header->kind != static_cast<uint8_t>(Kind::kOperation)) return std::nullopt;
  if (header->opcode > IBV_WR_ATOMIC_FETCH_AND_ADD && header->opcode != IBV_WR_SEND_WITH_INV) {
    return std::nullopt;
  }
  const auto opcode = static_cast<ibv_wr_opcode>(header->opcode);
  const std::span<const std::byte> behind = message.subspan(sizeof(OperationHeader));
  if (behind.size() != bytes_behind_header(opcode, header->length)) return std::nullopt;
  Operation operation;
  operation.request = {.opcode = opcode,
                       .solicited = header->solicited != 0,
                       .imm = header->imm,
                       .rkey = header->rkey,
                       .remote_address = header->remote_address,
                       .length = header->length,
                       .sequence = header->sequence,
                       .pieces = {}};
  if (!is_atomic(opcode)) {
    operation.payload = behind;
    return operation;
  }
  AtomicOperands operands;
  std::memcpy(&operands, behind.data(), sizeof(operands));
  operation.request.compare_add = operands.compare_add;
  operation.request.swap = operands.swap;
  return operation;
}

void encode_answer(Fate fate, const Answer& answer, std::span<const std::byte> read_result,
                   std::vector<std::byte>& out) {
  AnswerHeader header;
  header.fate = static_cast<uint8_t>(fate);
  header.rnr_timer = answer.rnr_timer;
  header.status = static_cast<uint8_t>(answer.status);
  begin_message(out, header, read_result.size());
  append(out, read_result.data(), read_result.size());
}

std::optional<ParsedAnswer> parse_answer(std::span<const std::byte> message) {
  const std::optional<AnswerHeader> header = header_of<AnswerHeader>(message);
  if (!header || header->fate > static_cast<uint8_t>(Fate::kGone)) return std::nullopt;
  if (header->status > IBV_WC_GENERAL_ERR) return std::nullopt;
  ParsedAnswer parsed;
  parsed.fate = static_cast<Fate>(header->fate);
  parsed.answer.rnr_timer = header->rnr_timer;
  parsed.answer.status = static_cast<ibv_wc_status>(header->status);
  switch (parsed.fate) {
    case Fate::kAck:
      parsed.answer.kind = Answer::Kind::kAck;
      break;
    case Fate::kNoReceive:
      parsed.answer.kind = Answer::Kind::kNoReceive;
      break;
    case Fate::kOutOfSequence:
      parsed.answer.kind = Answer::Kind::kOutOfSequence;
      break;
    case Fate::kError:
      parsed.answer.kind = Answer::Kind::kError;
      break;
    case Fate::kGone:
      break;
  }
  parsed.read_data = message.subspan(sizeof(AnswerHeader));
  return parsed;
}

}  // namespace braid::vhca::soft::sim
