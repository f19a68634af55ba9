// A server of TRS by raw verbs, on one port, that grants, proves, says and answers what the input
// chooses: the ordinary way but for what the input bends or leaves out. Zeroes make sessions that
// work.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/fuzz/two_party.h"
#include "trs/handshake.h"
#include "trs/raw_peer.h"
#include "trs/test_keys.h"

namespace braid::fuzz {

/// A connection that was accepted, and what its client said on it.
struct HostileLine {
  std::unique_ptr<trs::testing::RawConnection> raw;
  trs::wire::ConnReq asked;
  trs::wire::ConnRsp granted;
  trs::wire::ParsedInfoReq info;
  std::optional<trs::ServerHandshake> handshake;  // of connection 0
  size_t looked_at = 0;                           // completions
  bool usable() { return raw->connection != nullptr && !raw->lost(); }
};

/// One port of the hostile server. Says and does what the input says when it is told to serve.
class HostileServer final : public trs::testing::RawPeer {
 public:
  static constexpr uint16_t kDepth = 8;
  static constexpr uint32_t kMaxIoBytes = 4096;
  static constexpr trs::testing::ProcessSize kSize{.memory_bytes = 160 << 10,
                                                   .registrations_max = 512};

  HostileServer(base::sim::SimHost& process, const char* ip, Numbers& numbers, bool keyed)
      : RawPeer(process, ip, kSize), numbers_(numbers), keyed_(keyed) {
    may_overrun = true;
    grant(false);
    listener_ = std::move(*device->listen(home(), {ip, trs::testing::kPort}, 16));
    task_ = accept_loop();
    task_.start();
  }

  /// What the next connections are granted.
  void grant(bool odd) {
    says_ = {};
    says_.queue_depth = odd ? static_cast<uint16_t>(1 + numbers_.below(200)) : kDepth;
    says_.max_io_size = odd ? 4096u << numbers_.below(4) : kMaxIoBytes;
    says_.max_hdr_size = uint32_t{says_.max_io_size};
    says_.braid_magic = trs::wire::kBraidMagic;
    says_.braid_features = trs::kAllFeatures;
    refuses_ = odd && numbers_.odd(4);
    if (!odd) return;
    if (refuses_) says_.error = static_cast<uint16_t>(-int{numbers_.next<uint8_t>()});
    if (numbers_.odd(8)) says_.flags = uint32_t{numbers_.below(4)};
    if (numbers_.flag()) says_.braid_features = any_features(numbers_);
    if (numbers_.odd(4)) says_.braid_magic = says_.braid_features = 0u;  // as Linux
  }

  /// Answers all that has come since, the ordinary way but for what the input bends.
  void serve() {
    for (size_t i = 0; i < lines.size(); ++i) {
      HostileLine& line = *lines[i];
      line.raw->poll();
      while (line.looked_at < line.raw->completions.size()) {
        const vhca::Wc wc = line.raw->completions[line.looked_at++];
        if (wc.status != IBV_WC_SUCCESS || !line.usable()) continue;
        if (wc.wr_id < 1000) continue;
        if (wc.opcode == IBV_WC_RECV) {
          came(line, received(wc.wr_id - 1000, std::min<size_t>(wc.byte_len, 512)));
        } else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
          came(line, trs::decode_imm(trs::from_network(wc.imm_data)));
        }
        if (line.usable()) post_receive(*line.raw, wc.wr_id - 1000);
      }
    }
  }

  /// Mostly one of the newest two, which are the present path.
  HostileLine* pick() {
    if (lines.empty()) return nullptr;
    const size_t back = numbers_.below(8);
    const size_t recent = back % std::min<size_t>(2, lines.size());
    HostileLine& line = *lines[lines.size() - 1 - (back < 6 ? recent : back % lines.size())];
    return line.usable() ? &line : nullptr;
  }

  std::vector<std::unique_ptr<HostileLine>> lines;

 private:
  static constexpr size_t kLinesMax = 60;
  static constexpr size_t kChunksFrom = 8192;  // in memory; before it is what it sends

  base::Task<void> accept_loop() {
    for (;;) {
      auto request = co_await listener_->next();
      if (!request.ok()) co_return;
      const std::vector<std::byte> answer = answer_to((*request)->private_data());
      if (refuses_ || lines.size() >= kLinesMax) {
        (*request)->reject(answer);
        continue;
      }
      HostileLine& line = *lines.back();
      vhca::ConnectParameters parameters;
      parameters.private_data = answer;
      auto result = co_await (*request)->accept(home(), *line.raw->qp, parameters);
      if (result.ok()) line.raw->connection = std::move(*result);
      line.raw->decided = true;
    }
  }
  std::vector<std::byte> answer_to(std::span<const std::byte> said) {
    trs::wire::ConnRsp granted = says_;
    auto asked = trs::wire::parse_conn_req(said);
    if (keyed_) granted.braid_features = granted.braid_features | trs::wire::kFeatureAuthentication;
    if (!refuses_ && lines.size() < kLinesMax) {
      lines.push_back(std::make_unique<HostileLine>());
      HostileLine& line = *lines.back();
      line.raw = make();
      if (asked.ok()) line.asked = *asked;
      if (keyed_ && line.asked.cid > 0) prove_joined(line, granted);
      line.granted = granted;
      if (keyed_ && line.asked.cid == 0) expect_proof(line);
    }
    return numbers_.bent(trs::wire::bytes_of(granted));
  }
  void expect_proof(HostileLine& line) {
    trs::wire::Nonce nonce;
    nonce.fill(++nonces_);
    const uint8_t number = numbers_.odd(8) ? 9 : 1;  // another key of that name
    line.handshake.emplace(trs::testing::test_ring({trs::testing::test_key("client", number)}),
                           line.asked, line.granted, nonce);
  }
  void prove_joined(const HostileLine& line, trs::wire::ConnRsp& granted) {
    HostileLine* const first = first_line();
    if (first == nullptr || !proven(*first)) return;
    trs::wire::ConnReq asked = line.asked;
    asked.sess_uuid = first->asked.sess_uuid;
    granted.braid_proof = first->handshake->secret().joined(asked, granted);
  }
  /// Connection 0 of the newest path.
  HostileLine* first_line() {
    for (size_t i = lines.size(); i-- > 0;)
      if (lines[i]->handshake) return lines[i].get();
    return nullptr;
  }
  static bool proven(const HostileLine& line) {
    return line.handshake && line.handshake->key() != nullptr;
  }

  // --- what the client says

  void came(HostileLine& line, std::span<const std::byte> message) {
    base::le16 type;
    if (message.size() < sizeof(type)) return;
    std::memcpy(&type, message.data(), sizeof(type));
    switch (static_cast<trs::wire::MessageType>(uint16_t{type})) {
      case trs::wire::MessageType::kInfoReq:
        return info(line, message);
      case trs::wire::MessageType::kFencePath: {
        auto fence = trs::wire::parse_fence(message, trs::wire::MessageType::kFencePath);
        if (!fence.ok() || numbers_.odd(8)) return;
        fence->type = uint16_t{33};
        return send(*line.raw, numbers_.bent(trs::wire::bytes_of(*fence)));
      }
      default:
        if (line.handshake) prove(line, message);
    }
  }
  void prove(HostileLine& line, std::span<const std::byte> message) {
    using Kind = trs::ServerHandshake::Step::Kind;
    const auto step = line.handshake->received(message);
    if (step.kind == Kind::kChallenge) {
      send(*line.raw, numbers_.bent(trs::wire::bytes_of(line.handshake->challenge())));
    } else if (step.kind == Kind::kProven) {
      send(*line.raw, numbers_.bent(trs::wire::bytes_of(line.handshake->welcome())));
    } else if (step.kind == Kind::kRefused) {
      send(*line.raw, trs::wire::bytes_of(trs::ServerHandshake::refuse(EKEYREJECTED)));
    }
  }
  void info(HostileLine& line, std::span<const std::byte> message) {
    trs::wire::InfoReq request;
    std::memcpy(&request, message.data(), std::min(message.size(), sizeof(request)));
    auto parsed = trs::wire::parse_info_req(trs::wire::bytes_of(request));
    if (!parsed.ok() || numbers_.odd(16)) return;
    line.info = *parsed;
    struct {
      trs::wire::InfoRsp head;
      trs::wire::SgDescriptor region;
    } says;
    says.head.sg_cnt = uint16_t{1};
    says.head.braid_epoch = numbers_.odd(16) ? numbers_.next<uint32_t>() : 0x1234567;
    says.region.address = reinterpret_cast<uint64_t>(memory.data() + kChunksFrom);
    says.region.key = mr->rkey;
    says.region.length = line.granted.queue_depth *
                         (uint32_t{line.granted.max_io_size} + uint32_t{line.granted.max_hdr_size});
    const auto plain = std::as_bytes(std::span(&says, 1));
    std::vector<std::byte> bytes(plain.begin(), plain.end());
    if (proven(line)) {
      const trs::wire::Proof proof = line.handshake->secret().told(request, plain);
      const auto more = std::as_bytes(std::span(proof));
      bytes.insert(bytes.end(), more.begin(), more.end());
    }
    send(*line.raw, numbers_.bent(bytes));
  }

  void came(HostileLine& line, trs::Imm imm) {
    if (imm.type == trs::ImmType::kHeartbeat) {
      const uint32_t how = numbers_.below(16);
      for (unsigned i = 0; i < 20 && how == 14; ++i)
        write_imm(*line.raw, {}, 0, 0, trs::encode_imm({trs::ImmType::kNotice, 0}));
      if (how != 15)
        write_imm(*line.raw, {}, 0, 0, trs::encode_imm({trs::ImmType::kHeartbeatAck, 0}));
    }
    if (imm.type != trs::ImmType::kRequest || numbers_.odd(8)) return;  // or never answered
    const uint32_t depth = uint16_t{line.granted.queue_depth};
    const uint32_t chunk_bytes =
        uint32_t{line.granted.max_io_size} + uint32_t{line.granted.max_hdr_size};
    const auto [chunk, offset] = trs::ImmCodec(depth).decode(imm.payload);
    if (kChunksFrom + (chunk + 1ull) * chunk_bytes > memory.size() / 2) return;
    std::array<std::byte, trs::wire::kUserHeaderBytesMax> header;
    trs::wire::ParsedRequest request;
    const auto its = std::span(memory).subspan(kChunksFrom + chunk * chunk_bytes, chunk_bytes);
    const char* const wrong =
        trs::wire::parse_request(its, offset, uint32_t{line.granted.max_io_size}, header, request);
    if (wrong == nullptr) answer(line, chunk, request);
  }
  /// With what was asked for, an error, a slot, or with more than was asked for.
  void answer(HostileLine& line, uint32_t chunk, const trs::wire::ParsedRequest& request) {
    const uint32_t id = numbers_.odd(16) ? numbers_.below(32) : chunk;
    if (numbers_.odd(8)) {
      const uint32_t sys_errno = numbers_.next<uint16_t>() & 0x1ff;
      return write_imm(*line.raw, {}, 0, 0, trs::encode_answer({id, sys_errno}));
    }
    const uint32_t key = uint32_t{request.target.key};
    uint32_t bytes = request.direction == trs::Direction::kRead ? request.data_bytes : 0;
    if (numbers_.odd(16)) bytes = numbers_.next<uint16_t>() % (2 * kMaxIoBytes);
    const std::vector<std::byte> data(bytes, std::byte{0x77});
    if (numbers_.odd(4)) {
      trs::wire::AnswerSlot slot;
      slot.status = numbers_.flag() ? 0u : numbers_.next<uint8_t>();
      slot.sequence = request.sequence;
      slot.flags = numbers_.flag() ? uint32_t{trs::wire::kHasWords} : 0u;
      slot.new_key = numbers_.odd(8) ? numbers_.next<uint32_t>() : 0u;
      write(*line.raw, data, uint64_t{request.target.address}, key);
      return write_imm(*line.raw, numbers_.bent(trs::wire::bytes_of(slot)),
                       line.info.answers_address + uint64_t{id} * trs::wire::kAnswerSlotBytes,
                       line.info.answers_key, trs::encode_answer({id, trs::kSeeAnswerSlot}));
    }
    if ((line.granted.flags & trs::wire::kNewRkey) != 0) {
      trs::wire::RkeyRsp next;
      next.buf_id = static_cast<uint16_t>(id);
      next.rkey = mr->rkey;
      if (!data.empty()) write(*line.raw, data, uint64_t{request.target.address}, key);
      return send_imm(*line.raw, numbers_.bent(trs::wire::bytes_of(next)),
                      trs::encode_answer({id, 0}));
    }
    write_imm(*line.raw, data, data.empty() ? 0 : uint64_t{request.target.address},
              data.empty() ? 0 : key, trs::encode_answer({id, 0, numbers_.odd(16)}));
  }

  Numbers& numbers_;
  const bool keyed_;
  trs::wire::ConnRsp says_;
  bool refuses_ = false;
  uint8_t nonces_ = 0;
  std::unique_ptr<vhca::Listener> listener_;
  base::Task<void> task_;
};

}  // namespace braid::fuzz
