// What two simulated ends say to each other over a channel of SimFabric.
//
// Requests: REPLY, REJECT (connection manager, acceptor to initiator), OPERATION (of verbs). The
// initiator's first message is CONNECT. Every request is answered; OPERATION by AnswerHeader and,
// for a READ or an atomic, its data. Headers are little-endian and followed by their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/endian.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::sim {

enum class Kind : uint8_t { kConnect = 1, kReply = 2, kReject = 3, kOperation = 4 };

enum class RejectReason : uint8_t { kUser = 0, kBacklog = 1 };

/// CONNECT, REPLY and REJECT: private data follows.
struct CmHeader {
  uint8_t kind = 0;
  uint8_t reason = 0;  // of a REJECT
  uint8_t reserved[2] = {};
  base::le32 qp_number;
};
static_assert(sizeof(CmHeader) == 8 && std::has_unique_object_representations_v<CmHeader>);

/// OPERATION: the data of a SEND or WRITE follows, or the operands of an atomic.
struct OperationHeader {
  uint8_t kind = 0;
  uint8_t opcode = 0;  // ibv_wr_opcode
  uint8_t solicited = 0;
  uint8_t reserved = 0;
  base::le32 imm;  // the bytes of the work request, as they are
  base::le32 rkey;
  base::le32 length;
  base::le64 remote_address;
  base::le64 sequence;
};
static_assert(sizeof(OperationHeader) == 32 &&
              std::has_unique_object_representations_v<OperationHeader>);

/// Follows the header of an atomic, whose `length` is 8.
struct AtomicOperands {
  base::le64 compare_add;
  base::le64 swap;
};
static_assert(sizeof(AtomicOperands) == 16 &&
              std::has_unique_object_representations_v<AtomicOperands>);

/// How an OPERATION fared. kGone: the QP there has no link any more.
enum class Fate : uint8_t { kAck = 0, kNoReceive = 1, kError = 2, kOutOfSequence = 3, kGone = 4 };
struct AnswerHeader {
  uint8_t fate = 0;
  uint8_t rnr_timer = 0;
  uint8_t status = 0;  // ibv_wc_status
  uint8_t reserved = 0;
};
static_assert(sizeof(AnswerHeader) == 4 && std::has_unique_object_representations_v<AnswerHeader>);

std::vector<std::byte> encode_cm(Kind kind, uint32_t qp_number,
                                 std::span<const std::byte> private_data,
                                 RejectReason reason = RejectReason::kUser);
struct Cm {
  Kind kind = Kind::kConnect;
  RejectReason reason = RejectReason::kUser;
  uint32_t qp_number = 0;
  std::span<const std::byte> private_data;  // into the message
};
/// Nothing if the message breaks a rule.
std::optional<Cm> parse_cm(std::span<const std::byte> message);

size_t operation_bytes(const Request& request);
/// Gathers the data of a SEND or WRITE from the request's pieces, into `out`.
void encode_operation(const Request& request, std::vector<std::byte>& out);
struct Operation {
  Request request;                     // without pieces
  std::span<const std::byte> payload;  // into the message
};
std::optional<Operation> parse_operation(std::span<const std::byte> message);

/// Into `out`.
void encode_answer(Fate fate, const Answer& answer, std::span<const std::byte> read_result,
                   std::vector<std::byte>& out);
struct ParsedAnswer {
  Fate fate = Fate::kGone;
  Answer answer;
  std::span<const std::byte> read_data;  // into the message
};
std::optional<ParsedAnswer> parse_answer(std::span<const std::byte> message);

}  // namespace braid::vhca::soft::sim
