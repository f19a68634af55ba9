// Any 28 bytes as an NBD request, against devices of several shapes: what is run must satisfy the
// block seam's own rules.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "bnbd/frontend/nbd_wire.h"
#include "tests/fuzz/reached.h"

using braid::bnbd::BlockInfo;
using braid::bnbd::BlockOp;
using braid::bnbd::BlockRequest;
using braid::bnbd::NbdRequest;
using braid::bnbd::NbdVerdict;

namespace {

braid::fuzz::Verdicts requests("request");

constexpr uint32_t kChunkMax = 1 << 20;

/// The first byte chooses the device.
BlockInfo device(uint8_t choice) {
  BlockInfo info;
  info.size_bytes = (choice & 1) != 0 ? uint64_t{1} << 40 : 1 << 20;
  info.logical_block_bytes = (choice & 2) != 0 ? 4096 : 512;
  info.read_only = (choice & 4) != 0;
  // A request longer than these, or than a slot, is cut into pieces, which a single check() does
  // not see.
  info.max_discard_bytes = (choice & 8) != 0 ? UINT64_MAX : 0;
  info.max_write_zeroes_bytes = (choice & 16) != 0 ? UINT64_MAX : 0;
  info.max_io_bytes = braid::bnbd::kNbdTransferMax;
  return info;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  std::byte bytes[1 + sizeof(NbdRequest)] = {};
  std::memcpy(bytes, data, size_bytes < sizeof(bytes) ? size_bytes : sizeof(bytes));
  const BlockInfo info = device(static_cast<uint8_t>(bytes[0]));
  const auto wire = std::span(bytes).subspan<1, sizeof(NbdRequest)>();
  const braid::bnbd::NbdTerms terms{.structured = (static_cast<uint8_t>(bytes[0]) & 32) != 0,
                                    .read_only = (static_cast<uint8_t>(bytes[0]) & 64) != 0};
  const NbdVerdict verdict = braid::bnbd::parse_nbd_request(wire, info, kChunkMax, terms);

  if (verdict.kind == NbdVerdict::Kind::kRefuse && verdict.error == 0) std::abort();
  if (!requests.count(verdict.kind == NbdVerdict::Kind::kRun)) return 0;
  const bool changes = verdict.op != BlockOp::kRead && verdict.op != BlockOp::kFlush;
  if (changes && terms.read_only) std::abort();
  std::byte buffer = {};
  BlockRequest request;
  request.op = verdict.op;
  request.offset_bytes = verdict.offset_bytes;
  request.length_bytes = verdict.length_bytes;
  request.buffer.address = &buffer;
  if (braid::bnbd::check(info, request) != braid::base::Errc::kOk) std::abort();
  if (verdict.op == BlockOp::kWrite && verdict.payload_bytes != verdict.length_bytes) std::abort();
  return 0;
}
