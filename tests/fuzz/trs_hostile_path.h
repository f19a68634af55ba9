// A path of a hostile client of TRS: connection 0, one or two for I/O, and what came by them.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "tests/fuzz/trs_hostile_request.h"
#include "trs/handshake.h"
#include "trs/raw_peer.h"

namespace braid::fuzz {

struct HostilePath {
  using RawConnection = trs::testing::RawConnection;
  static constexpr uint32_t kChunks = HostileLife::kChunks;
  static constexpr uint32_t kChunkBytes = 8192;

  std::array<std::unique_ptr<RawConnection>, 3> lines;
  std::array<size_t, 3> looked_at{};  // completions of each line
  trs::wire::ConnReq asked;
  size_t life = 0;
  std::optional<trs::ClientHandshake> handshake;
  std::vector<trs::wire::ChunkRegion> chunks;  // empty: not known
  bool counted_keys = false;

  static bool usable(RawConnection* line) {
    return line != nullptr && line->connection != nullptr && !line->lost();
  }
  bool proven() const { return handshake && handshake->proven(); }
  /// Each of its connections is taken or refused.
  bool decided() const {
    return std::all_of(lines.begin(), lines.end(),
                       [](const auto& line) { return line == nullptr || line->decided; });
  }

  /// What the info answer said. False: it has not come, and may still.
  bool learn(trs::testing::RawPeer& raw, HostileLife& its) {
    RawConnection& line = *lines[0];
    line.poll();
    for (const vhca::Wc& wc : line.completions) {
      if (wc.opcode != IBV_WC_RECV || wc.status != IBV_WC_SUCCESS) continue;
      size_t bytes = std::min<size_t>(wc.byte_len, 512);
      if (handshake && bytes > sizeof(trs::wire::Proof)) bytes -= sizeof(trs::wire::Proof);
      std::vector<trs::wire::ChunkRegion> told(kChunks);
      size_t regions = 0;
      auto epoch = trs::wire::parse_info_rsp(raw.received(wc.wr_id - 1000, bytes), kChunkBytes,
                                             told, &regions);
      if (!epoch.ok()) continue;
      chunks = told;
      counted_keys = regions == kChunks;
      if (its.epoch != *epoch) its.begin(*epoch);
      return true;
    }
    return line.lost();
  }

  /// A request that was answered has its receive back, and its chunk the next key.
  void take_answers(trs::testing::RawPeer& raw) {
    for (size_t cid = 0; cid < lines.size(); ++cid) {
      RawConnection* const line = lines[cid].get();
      if (line == nullptr) continue;
      line->poll();
      while (looked_at[cid] < line->completions.size()) {
        const vhca::Wc wc = line->completions[looked_at[cid]++];
        if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) continue;
        raw.post_receive(*line, wc.wr_id - 1000);
        answered(trs::decode_imm(trs::from_network(wc.imm_data)));
      }
    }
  }

 private:
  void answered(trs::Imm imm) {
    const uint32_t chunk = trs::decode_answer(imm.payload).request_id;
    if (imm.type != trs::ImmType::kAnswer || !counted_keys || chunk >= kChunks) return;
    uint32_t& key = chunks[chunk].key;
    key = (key & ~0xffu) | ((key + 1) & 0xffu);
  }
};

}  // namespace braid::fuzz
