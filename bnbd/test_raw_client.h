// For tests of what a client may do to others: a TRS client by hand.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "bnbd/wire.h"
#include "trs/raw_peer.h"

namespace braid::bnbd::test {

/// As fast as can be, if it is called whenever anything at all happens in the world.
class RawClient {
 public:
  enum class Kind : uint8_t { kBraid, kLinux };
  /// With what the server grants: its queue depth, at most 64, and the length of a chunk.
  /// `first_life`: far from those of others that this peer has sessions with.
  RawClient(trs::testing::RawPeer& peer, uint32_t queue_depth, uint32_t chunk_bytes,
            Kind kind = Kind::kBraid, uint32_t first_life = 0)
      : peer_(peer),
        queue_depth_(queue_depth),
        chunk_bytes_(chunk_bytes),
        kind_(kind),
        lives_(first_life) {}

  /// Goes on with its handshake; true while it has a session.
  bool has_session() {
    if (!begun_) begin();
    if (!cid0_->decided) return false;
    if (!cid0_->connection) return again();
    if (!cid1_) {
      cid1_ = peer_.make();
      peer_.connect(*cid1_, bytes_of(request_for(1)));
    }
    if (!cid1_->decided) return false;
    if (!cid1_->connection) return again();
    if (!asked_) ask();
    cid0_->poll();
    if (chunks_.empty()) {
      if (cid0_->completions.size() < 2) return cid0_->lost() ? again() : false;
      std::vector<trs::wire::ChunkRegion> chunks(queue_depth_);
      auto announced = trs::wire::parse_info_rsp(peer_.received(0, 24), chunk_bytes_, chunks);
      EXPECT_TRUE(announced.ok());
      chunks_ = chunks;
      ++sessions;
    }
    return true;
  }
  /// A write of nothing with a header of eight bytes that no message of BNBD has.
  void send_nonsense(uint32_t chunk) {
    const std::array<uint8_t, 12> bytes = {0xff, 0xee, 9, 9, 9, 9, 9, 9, 2, 0, 8, 0};
    send(chunk, bytes, 8, 0);
  }
  /// A message with an immediate that no client sends: the server ends the session.
  void break_protocol() { peer_.write_imm(*cid1_, {}, 0, 0, 0x70000000u); }
  /// A control message, and where its answer goes: kAnswerBytes.
  template <typename T>
  void ask(uint32_t chunk, const T& message) {
    ask(chunk, message, answer(chunk));
  }
  template <typename T>
  void ask(uint32_t chunk, const T& message, std::span<std::byte> place) {
    const auto place_bytes = static_cast<uint32_t>(place.size());
    trs::wire::ReadMsg read;
    read.usr_len = static_cast<uint16_t>(sizeof(T));
    read.sg_cnt = uint16_t{1};
    trs::wire::SgDescriptor target;
    target.address = reinterpret_cast<uint64_t>(place.data());
    target.key = peer_.mr->rkey;
    target.length = place_bytes;
    std::array<uint8_t, sizeof(T) + sizeof(read) + sizeof(target)> bytes;
    std::memcpy(bytes.data(), &message, sizeof(T));
    std::memcpy(bytes.data() + sizeof(T), &read, sizeof(read));
    std::memcpy(bytes.data() + sizeof(T) + sizeof(read), &target, sizeof(target));
    send(chunk, bytes, sizeof(T), place_bytes);  // behind where the answer might lie
  }
  /// Keeps so many writes into a chunk under way that ask for nothing and that nobody is told of.
  void keep_writing(uint32_t chunk, uint32_t bytes, uint32_t depth) {
    (void)take_answers();
    for (; written - writes_done_ < depth; ++written) {
      peer_.write(*cid1_, std::span(peer_.memory).first(bytes), chunks_[chunk].address,
                  chunks_[chunk].key);
    }
  }
  static constexpr uint32_t kAnswerBytes = wire::kNewsBytesMax;
  /// Of what was asked last with this chunk.
  std::span<std::byte> answer(uint32_t chunk) {
    const size_t begin = peer_.memory.size() / 2 + 64 * 512;  // behind the receives
    return std::span(peer_.memory).subspan(begin + size_t{chunk} * kAnswerBytes, kAnswerBytes);
  }
  /// What a block may be read to.
  std::span<std::byte> block(size_t bytes) {
    return std::span(peer_.memory).subspan(peer_.memory.size() / 8, bytes);
  }
  uint32_t last_answer_bytes() const { return last_answer_bytes_; }  // that came with its immediate
  /// The chunks whose answers have come by the I/O connection since the last call; makes room for
  /// others.
  std::vector<uint32_t> take_answers() {
    cid1_->poll();
    std::vector<uint32_t> chunks;
    for (const vhca::Wc& wc : cid1_->completions) {
      if (wc.status != IBV_WC_SUCCESS) broken_ = true;
      if (wc.opcode == IBV_WC_RDMA_WRITE) ++writes_done_;
      if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) continue;
      const trs::Imm imm = trs::decode_imm(trs::from_network(wc.imm_data));
      last_answer_bytes_ = wc.byte_len;
      if (imm.type == trs::ImmType::kAnswer)
        chunks.push_back(trs::decode_answer(imm.payload).request_id);
      receive_again();
    }
    cid1_->completions.clear();
    return chunks;
  }
  bool lost() { return broken_ || cid0_->lost() || cid1_->lost(); }
  bool again() {
    cid0_.reset();
    cid1_.reset();
    begun_ = asked_ = broken_ = false;
    chunks_.clear();
    return false;
  }
  /// Begins another session and leaves the last one as it is, half open; keeps `most` of those.
  void leave_half_open(size_t most) {
    if (!begun_) begin();
    if (!cid0_->decided) return;
    if (!cid0_->connection) return void(again());  // refused
    half_open_.push_back(std::move(cid0_));
    if (half_open_.size() > most) half_open_.pop_front();
    ++sessions;
    again();
  }
  uint64_t sessions = 0;
  uint64_t written = 0;  // by keep_writing()

 private:
  static std::vector<std::byte> bytes_of(const trs::wire::ConnReq& request) {
    const auto bytes = trs::wire::bytes_of(request);
    return {bytes.begin(), bytes.end()};
  }
  trs::wire::ConnReq request_for(uint16_t cid) const {
    trs::wire::ConnReq request;
    request.cid = cid;
    request.cid_num = uint16_t{2};
    request.recon_cnt = uint16_t{1};
    request.sess_uuid.bytes.fill(static_cast<uint8_t>(lives_));
    request.paths_uuid.bytes.fill(static_cast<uint8_t>(lives_ >> 8));
    std::memcpy(request.paths_uuid.bytes.data(), &lives_, sizeof(lives_));
    request.flags = trs::wire::kFirstConn;
    if (kind_ == Kind::kLinux) return request;
    request.braid_magic = trs::wire::kBraidMagic;
    request.braid_features = trs::wire::kFeaturePinnedPermits | trs::wire::kFeatureAdminPermits;
    return request;
  }
  void begin() {
    begun_ = true;
    ++lives_;
    cid0_ = peer_.make();
    peer_.connect(*cid0_, bytes_of(request_for(0)));
  }
  void ask() {
    asked_ = true;
    trs::wire::InfoReq request;
    std::memcpy(request.session_name.data(), "raw", 3);
    if (kind_ == Kind::kBraid) request.braid_admin_permits = 1;
    peer_.send(*cid0_, trs::wire::bytes_of(request));
  }
  /// A user header of so many bytes with its message, at a place in the chunk.
  void send(uint32_t chunk, std::span<const uint8_t> bytes, uint32_t header_bytes, uint32_t at) {
    peer_.write_imm(*cid1_, std::as_bytes(bytes), chunks_[chunk].address + at, chunks_[chunk].key,
                    trs::ImmCodec(queue_depth_).encode({chunk, at + header_bytes}));
  }
  void receive_again() {
    vhca::RecvWr wr{};
    const vhca::RecvWr* bad = nullptr;
    EXPECT_EQ(cid1_->qp->post_recv(&wr, &bad), 0);
  }
  trs::testing::RawPeer& peer_;
  const uint32_t queue_depth_;
  const uint32_t chunk_bytes_;
  const Kind kind_;
  std::unique_ptr<trs::testing::RawConnection> cid0_, cid1_;
  std::deque<std::unique_ptr<trs::testing::RawConnection>> half_open_;
  std::vector<trs::wire::ChunkRegion> chunks_;
  bool begun_ = false, asked_ = false, broken_ = false;
  uint32_t lives_;
  uint64_t writes_done_ = 0;
  uint32_t last_answer_bytes_ = 0;
};

/// Connection 0 of ever another client, from one address: several at a time, as fast as they are
/// decided. What is let in stays half open until the server ends it.
class RawCrowd {
 public:
  /// `features`: what each of them shows.
  explicit RawCrowd(trs::testing::RawPeer& peer, uint32_t features = 0)
      : peer_(peer), features_(features) {}
  void go_on() {
    for (auto& connecting : connecting_) {
      if (connecting && !connecting->decided) continue;
      if (connecting) settle(std::move(connecting));
      trs::wire::ConnReq request;
      request.cid_num = uint16_t{2};
      request.recon_cnt = uint16_t{1};
      request.flags = trs::wire::kFirstConn;
      request.braid_magic = trs::wire::kBraidMagic;
      request.braid_features = features_;
      request.sess_uuid.bytes.fill(1);
      std::memcpy(request.paths_uuid.bytes.data(), &++begun, sizeof(begun));
      const auto bytes = trs::wire::bytes_of(request);
      connecting = peer_.make();
      peer_.connect(*connecting, {bytes.begin(), bytes.end()});
    }
  }
  /// Those that are half open write nothing without end, so many at a time. Not with go_on().
  void keep_writing_nothing(uint32_t depth) {
    writes_.resize(half_open_.size());
    for (size_t i = 0; i < half_open_.size(); ++i) {
      trs::testing::RawConnection& each = *half_open_[i];
      each.poll();
      writes_[i] -= each.completions.size();
      each.completions.clear();
      for (; writes_[i] < depth; ++writes_[i], ++written) peer_.write(each, {}, 0, 0);
    }
  }
  /// To be waited for before the end.
  bool decided() const {
    return std::all_of(connecting_.begin(), connecting_.end(),
                       [](const auto& each) { return !each || each->decided; });
  }
  uint64_t begun = 0, accepted = 0, refused = 0;
  uint64_t written = 0;  // by keep_writing_nothing()
  int refusal = 0;       // the last one's errno

 private:
  void settle(std::unique_ptr<trs::testing::RawConnection> decided) {
    ++(decided->connection ? accepted : refused);
    if (!decided->connection) {
      refusal = decided->reject_errno;
      return;
    }
    half_open_.push_back(std::move(decided));
    if (half_open_.size() > 64) half_open_.pop_front();
  }
  trs::testing::RawPeer& peer_;
  const uint32_t features_;
  std::array<std::unique_ptr<trs::testing::RawConnection>, 16> connecting_;
  std::deque<std::unique_ptr<trs::testing::RawConnection>> half_open_;
  std::vector<size_t> writes_;  // under way, of each
};

}  // namespace braid::bnbd::test
