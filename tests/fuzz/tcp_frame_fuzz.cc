// The parser of the TCP wire's frames, as a peer's bytes reach it. What is accepted obeys the rules
// that later code relies on; what is accepted while connecting is the same when sent on.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "tests/fuzz/reached.h"
#include "vhca/soft/remote_check.h"
#include "vhca/soft/tcp/frames.h"

namespace {

namespace soft = braid::vhca::soft;
namespace tcp = braid::vhca::soft::tcp;

braid::fuzz::Verdicts headers("a header"), connects("a frame of the connection manager");

void require(bool condition) {
  if (!condition) std::abort();
}

void check_header(const tcp::FrameHeader& header) {
  require(header.kind >= 1 && header.kind <= tcp::kFrameKindMax);
  if (static_cast<tcp::FrameKind>(header.kind) != tcp::FrameKind::kRequest) {
    require(header.length <= 1u << 31);
    return;
  }
  const soft::Request request = tcp::request_of(header);
  require(request.length <= 1u << 31);
  require(header.length == tcp::bytes_behind(request.opcode, request.length));
  require(!soft::is_atomic(request.opcode) || request.length == soft::kAtomicBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  tcp::FrameHeader header;
  if (size >= sizeof header) {
    std::memcpy(&header, data, sizeof header);
    if (headers.count(!tcp::validate(header).has_value())) check_header(header);
  }
  auto cm = tcp::parse_cm(bytes);
  if (!connects.count(cm.ok())) return 0;
  require(cm->qp_number < 1u << 24 && cm->private_data.size() <= tcp::kAcceptPrivateMax);
  const auto again =
      tcp::encode_cm(cm->kind, cm->epoch, cm->qp_number, cm->private_data, cm->reason);
  require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  return 0;
}
