// The parser of the in-host connection manager's datagrams, as a peer process's bytes reach it.
// What is accepted obeys the rules that later code relies on, and is accepted again when sent on.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tests/fuzz/reached.h"
#include "vhca/soft/inhost/cm_messages.h"

namespace {

namespace inhost = braid::vhca::soft::inhost;

braid::fuzz::Verdicts verdicts("a datagram");

void require(bool condition) {
  if (!condition) std::abort();
}

void check_end(const inhost::CmEnd& end) {
  require(end.geometry.valid());
  require(end.qp_number != 0 && end.qp_number < 1U << 24);
  require(end.retry_count <= 7 && end.rnr_retry_count <= 7 && end.ack_timeout <= 31);
  require(end.handles() <= 4);
}

}  // namespace

/// The first byte is the number of handles that came along.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t handles = data[0] % 5;
  const std::span<const std::byte> datagram = std::as_bytes(std::span(data + 1, size - 1));
  auto parsed = inhost::parse_cm_message(datagram, handles);
  if (!verdicts.count(parsed.ok())) return 0;
  const inhost::CmMessage& message = parsed.value();
  if (message.kind == inhost::CmKind::kRequest || message.kind == inhost::CmKind::kReply) {
    check_end(message.end);
  }
  const std::vector<std::byte> again = inhost::encode_cm_message(message);
  require(std::equal(again.begin(), again.end(), datagram.begin(), datagram.end()));
  return 0;
}
