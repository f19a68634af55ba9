// A request as it lies in a chunk: four bytes of immediate, then the chunk. What is accepted lies
// inside the chunk and within what the session allows.

#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/fuzz/reached.h"
#include "trs/imm.h"
#include "trs/wire.h"

namespace {

namespace wire = braid::trs::wire;

constexpr uint32_t kQueueDepth = 16;
constexpr uint32_t kMaxIoBytes = 2048;

braid::fuzz::Verdicts requests("request");

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  if (size_bytes < 4) return 0;
  uint32_t value = 0;
  std::memcpy(&value, data, sizeof(value));
  const braid::trs::Imm imm = braid::trs::decode_imm(braid::trs::from_network(value));
  require(imm.payload >> braid::trs::kImmPayloadBits == 0);
  const braid::trs::AnswerImm answer = braid::trs::decode_answer(imm.payload);
  require(answer.request_id <= braid::trs::kImmRequestIdMax);
  require(answer.sys_errno <= braid::trs::kImmErrnoMax);

  const braid::trs::ImmCodec codec(kQueueDepth);
  const braid::trs::RequestImm at = codec.decode(imm.payload);
  require(codec.encode(at) == imm.payload);
  // Of the exact length, so that a read beyond it is seen.
  const std::vector<std::uint8_t> copy(data + 4, data + size_bytes);
  const auto chunk = std::as_bytes(std::span(copy));
  std::array<std::byte, wire::kUserHeaderBytesMax> user_header;
  // As it is, and folded into the chunk, which an unguided byte rarely meets.
  for (const uint64_t offset : {uint64_t{at.offset_bytes}, at.offset_bytes % (chunk.size() + 1)}) {
    wire::ParsedRequest out;
    const char* const wrong =
        wire::parse_request(chunk, static_cast<uint32_t>(offset), kMaxIoBytes, user_header, out);
    if (!requests.count(wrong == nullptr)) continue;
    require(!out.sequenced || out.sequence != 0);
    require(out.sequenced || !out.has_words);
    require(out.data_bytes <= kMaxIoBytes && out.data_bytes <= chunk.size());
    require(out.user_header_bytes <= wire::kUserHeaderBytesMax);
    require(uint64_t{out.data_bytes} + out.user_header_bytes <= offset);
    if (out.direction == braid::trs::Direction::kRead) require(out.target.length == out.data_bytes);
  }
  return 0;
}
