// What a connection manager hands up as private data, and the info exchange. The first byte chooses
// the parser. What is accepted obeys the rules that later code relies on.

#include <bit>
#include <cstdlib>
#include <vector>

#include "tests/fuzz/reached.h"
#include "trs/imm.h"
#include "trs/wire.h"

namespace {

namespace wire = braid::trs::wire;

braid::fuzz::Verdicts requests("connect request"), accepts("accept"), rejects("reject"),
    infos("info request"), info_answers("info answer"), keys("new key"), fences("fence");

void require(bool condition) {
  if (!condition) std::abort();
}

void fuzz_conn_req(std::span<const std::byte> bytes) {
  const auto req = wire::parse_conn_req(bytes);
  if (!requests.count(req.ok())) return;
  auto copy = req;
  require(copy->cid < copy->cid_num);
  require(copy->cid_num >= 2 && copy->cid_num <= wire::kConnectionsMax);
  require(wire::parse_conn_req(wire::bytes_of(*copy)).ok());
}

void fuzz_accept(std::span<const std::byte> bytes) {
  auto rsp = wire::parse_accept(bytes);
  if (!accepts.count(rsp.ok())) return;
  const uint64_t chunk_bytes = uint64_t{rsp->max_io_size} + rsp->max_hdr_size;
  require(std::has_single_bit(chunk_bytes) && chunk_bytes >= wire::kChunkBytesMin);
  require(braid::trs::ImmCodec::fits(rsp->queue_depth, chunk_bytes));
  require(rsp->queue_depth * chunk_bytes <= uint64_t{1} << braid::trs::kImmPayloadBits);
}

void fuzz_info_req(std::span<const std::byte> bytes) {
  auto info = wire::parse_info_req(bytes);
  if (!infos.count(info.ok())) return;
  const std::string& name = info->session_name;
  require(!name.empty() && name.size() <= wire::kSessionNameBytesMax);
}

void fuzz_rkey_rsp(std::span<const std::byte> bytes) {
  for (const uint32_t request_id : {0u, 1u, 0x7ffffu}) {
    const auto key = wire::parse_rkey_rsp(bytes, request_id);
    keys.count(key.ok());
    require(!key.ok() || (bytes.size() == sizeof(wire::RkeyRsp) && request_id <= UINT16_MAX));
  }
}

void fuzz_fence(std::span<const std::byte> bytes) {
  const auto asked = wire::parse_fence(bytes, wire::MessageType::kFencePath);
  const auto told = wire::parse_fence(bytes, wire::MessageType::kPathFenced);
  require(!(asked.ok() && told.ok()));
  if (fences.count(asked.ok() || told.ok())) require(bytes.size() == sizeof(wire::FenceMsg));
}

/// Two bytes say how many chunks are due.
void fuzz_info_rsp(std::span<const std::byte> bytes) {
  if (bytes.size() < 2) return;
  const size_t count = 1 + std::to_integer<size_t>(bytes[0]);
  const uint32_t chunk_bytes = 4096u << (std::to_integer<unsigned>(bytes[1]) % 8);
  std::vector<wire::ChunkRegion> chunks(count);
  const bool ok = wire::parse_info_rsp(bytes.subspan(2), chunk_bytes, chunks).ok();
  if (!info_answers.count(ok)) return;
  for (const wire::ChunkRegion& chunk : chunks) require(chunk.address <= UINT64_MAX - chunk_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  if (size_bytes == 0) return 0;
  // Of the exact length, so that a read beyond it is seen.
  const std::vector<std::uint8_t> copy(data + 1, data + size_bytes);
  const auto bytes = std::as_bytes(std::span(copy));
  switch (data[0] % 7) {
    case 0:
      fuzz_conn_req(bytes);
      break;
    case 1:
      fuzz_accept(bytes);
      break;
    case 2: {
      auto reject = wire::parse_reject(bytes);
      if (rejects.count(reject.ok())) require(*reject >= 0 && *reject <= 32768);
      break;
    }
    case 3:
      fuzz_info_req(bytes);
      break;
    case 6:
      fuzz_fence(bytes);
      break;
    case 5:
      fuzz_rkey_rsp(bytes);
      break;
    default:
      fuzz_info_rsp(bytes);
      break;
  }
  return 0;
}
