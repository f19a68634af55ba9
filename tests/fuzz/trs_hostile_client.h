// A client of TRS by raw verbs that does what the input chooses: it connects, proves, says, writes
// and asks, the ordinary way but for what the input bends or leaves out. Zeroes make sessions that
// work.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tests/fuzz/trs_hostile_path.h"
#include "tests/fuzz/trs_hostile_request.h"
#include "tests/fuzz/two_party.h"
#include "trs/handshake.h"
#include "trs/raw_peer.h"
#include "trs/test_keys.h"

namespace braid::fuzz {

class HostileClient {
 public:
  static constexpr uint32_t kChunks = HostileLife::kChunks;
  static constexpr uint32_t kMaxIoBytes = 4096;

  HostileClient(base::sim::SimWorld& world, trs::testing::RawPeer& raw, Numbers& numbers,
                bool keyed)
      : world_(world), raw_(raw), numbers_(numbers), keyed_(keyed) {
    raw_.may_overrun = true;
  }

  /// A path with all its connections.
  void come_in();
  void request();
  /// Asks for the end of one of its paths, mostly by another path of the same session.
  void fence();
  /// Bytes of no meaning.
  void anything();
  void say_info_again();
  void say_it_lives();
  /// Gives a connection up.
  void drop();

  /// Each of its connections is taken or refused.
  bool decided() const {
    return std::all_of(paths_.begin(), paths_.end(), [](const Path& p) { return p.decided(); });
  }
  void leave() { paths_.clear(); }

 private:
  using Path = HostilePath;
  using RawConnection = trs::testing::RawConnection;
  static constexpr size_t kPathsMax = 6;

  trs::wire::ConnReq ask(Path& path);
  trs::wire::ConnReq joining(const Path& path, size_t cid) const;
  bool open_line(Path& path, size_t cid, const trs::wire::ConnReq& request);
  bool prove(Path& path);
  std::span<const std::byte> next_message(RawConnection& line, size_t index);
  void info(Path& path);
  void send_request(Path& path, RawConnection& by, uint32_t chunk);
  Path* pick();

  base::sim::SimWorld& world_;
  trs::testing::RawPeer& raw_;
  Numbers& numbers_;
  unsigned words_ = 0;  // of say_it_lives()
  const bool keyed_;
  std::deque<Path> paths_;
  std::array<HostileLife, 2> lives_{};
  uint16_t recon_cnt_ = 0;
  uint8_t nonces_ = 0;
};

// --- coming in: each part of it the ordinary way, bent, or left out

inline void HostileClient::come_in() {
  if (paths_.size() >= kPathsMax) {
    if (!paths_.front().decided()) return;
    paths_.pop_front();
  }
  paths_.emplace_back();
  Path& path = paths_.back();
  path.asked = ask(path);
  if (!open_line(path, 0, path.asked)) return;
  if (keyed_ && !numbers_.odd(16) && !prove(path)) return;
  const size_t lines = path.asked.cid_num >= 3 ? 3 : 2;
  for (size_t cid = 1; cid < lines && !numbers_.odd(16); ++cid) {
    if (!open_line(path, cid, joining(path, cid))) return;
  }
  if (!numbers_.odd(16)) info(path);
}

/// The connect request of connection 0.
inline trs::wire::ConnReq HostileClient::ask(Path& path) {
  namespace wire = trs::wire;
  path.life = numbers_.below(2);
  wire::ConnReq request;
  request.cid_num = static_cast<uint16_t>(numbers_.odd(4) ? 3 : 2);
  if (!numbers_.odd(4)) ++recon_cnt_;
  request.recon_cnt = recon_cnt_;
  request.sess_uuid.bytes.fill(static_cast<uint8_t>(1 + numbers_.below(3)));
  request.paths_uuid.bytes.fill(static_cast<uint8_t>(8 + path.life));
  if (!numbers_.odd(4)) request.flags = wire::kFirstConn;
  if (!numbers_.odd(8)) {
    request.braid_magic = wire::kBraidMagic;
    request.braid_features = numbers_.odd(4) ? any_features(numbers_) : trs::kAllFeatures;
  }
  if (keyed_) request.braid_features = request.braid_features | wire::kFeatureAuthentication;
  // A further path of what is open already, or a new incarnation.
  if (numbers_.flag()) wire::set_joined_epoch(request, lives_[path.life].epoch);
  return request;
}

inline trs::wire::ConnReq HostileClient::joining(const Path& path, size_t cid) const {
  trs::wire::ConnReq request = path.asked;
  request.cid = static_cast<uint16_t>(cid);
  if (path.proven()) request.sess_uuid = path.handshake->secret().join(request);
  return request;
}

inline bool HostileClient::open_line(Path& path, size_t cid, const trs::wire::ConnReq& request) {
  path.lines[cid] = raw_.make();
  RawConnection& raw = *path.lines[cid];
  raw_.connect(raw, numbers_.bent(trs::wire::bytes_of(request)));
  if (numbers_.odd(16)) return true;  // not waited for
  world_.run_until([&raw] { return raw.decided; }, 2 * base::kMillisecond);
  return raw.connection != nullptr;
}

/// The handshake of who has a key. False: it did not come off.
inline bool HostileClient::prove(Path& path) {
  namespace wire = trs::wire;
  RawConnection& line = *path.lines[0];
  if (!HostilePath::usable(&line)) return false;
  auto granted = wire::parse_accept(line.connection->peer_private_data());
  if (!granted.ok()) return false;
  wire::Nonce nonce;
  nonce.fill(++nonces_);
  const uint8_t number = numbers_.odd(8) ? 9 : 2;  // another key of that name
  path.handshake.emplace(trs::testing::test_key("insider", number), path.asked, *granted, nonce);
  raw_.send(line, numbers_.bent(wire::bytes_of(path.handshake->begin())));
  auto proof = path.handshake->received(next_message(line, 0));
  if (!proof.ok() || !proof->has_value()) return false;
  raw_.send(line, numbers_.bent(wire::bytes_of(**proof)));
  return path.handshake->received(next_message(line, 1)).ok() && path.handshake->proven();
}

inline std::span<const std::byte> HostileClient::next_message(RawConnection& line, size_t index) {
  const auto arrived = [](const vhca::Wc& wc) {
    return wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV;
  };
  const auto came = [&line, index, arrived] {
    line.poll();
    const auto count = std::count_if(line.completions.begin(), line.completions.end(), arrived);
    return static_cast<size_t>(count) > index;
  };
  if (!world_.run_until(came, 2 * base::kMillisecond)) return {};
  return raw_.received(index, sizeof(trs::wire::AuthChallenge));
}

inline void HostileClient::info(Path& path) {
  namespace wire = trs::wire;
  wire::InfoReq ask;
  std::memcpy(ask.session_name.data(), "hostile", 7);
  ask.braid_admin_permits = static_cast<uint8_t>(numbers_.odd(8) ? numbers_.below(20) : 1);
  ask.braid_answers_address = reinterpret_cast<uint64_t>(raw_.memory.data());
  ask.braid_answers_key = raw_.mr->rkey;
  std::vector<std::byte> said = to_bytes(ask);
  if (path.proven()) append(said, path.handshake->secret().info(ask));
  raw_.send(*path.lines[0], numbers_.bent(said));
  world_.run_until([&] { return path.learn(raw_, lives_[path.life]); }, base::kMillisecond);
}

inline void HostileClient::say_info_again() {
  Path* const path = pick();
  if (path != nullptr && HostilePath::usable(path->lines[0].get())) info(*path);
}

// --- on a path

/// Mostly the newest.
inline HostileClient::Path* HostileClient::pick() {
  if (paths_.empty()) return nullptr;
  const size_t back = numbers_.below(8);
  return &paths_[paths_.size() - 1 - (back < 4 ? 0 : back % paths_.size())];
}

inline void HostileClient::request() {
  Path* const path = pick();
  if (path == nullptr || path->chunks.empty()) return;
  if (!numbers_.odd(16)) path->take_answers(raw_);
  const uint32_t chunk = numbers_.odd(32) ? kChunks : 1 + numbers_.below(kChunks - 1);
  RawConnection* by = path->lines[1].get();
  if (path->lines[2] != nullptr) by = path->lines[1 + chunk % 2].get();
  if (numbers_.odd(16)) by = path->lines[numbers_.below(3)].get();
  if (!HostilePath::usable(by)) return;
  send_request(*path, *by, numbers_.odd(16) ? 0 : chunk);
  if (!numbers_.odd(4)) world_.run_for(30 * base::kMicrosecond);
}

inline void HostileClient::send_request(Path& path, RawConnection& by, uint32_t chunk) {
  const bool sequenced = (path.asked.braid_features & trs::wire::kFeatureSequenced) != 0;
  HostileRequest request(numbers_, lives_[path.life], sequenced, chunk % kChunks);
  const std::vector<std::byte> bytes = request.make(raw_.memory.data(), raw_.mr->rkey);
  const trs::wire::ChunkRegion& to = path.chunks[chunk % kChunks];
  raw_.write_imm(by, bytes, to.address + request.at(), to.key,
                 trs::ImmCodec(kChunks).encode({chunk, request.imm_offset()}));
}

inline void HostileClient::fence() {
  Path* const by = pick();
  Path* const of = pick();
  if (by == nullptr || of == nullptr || !HostilePath::usable(by->lines[0].get())) return;
  trs::wire::FenceMsg message;
  message.type = static_cast<uint16_t>(numbers_.odd(16) ? 33 : 32);
  message.recon_cnt = uint16_t{of->asked.recon_cnt};
  message.epoch = lives_[by->life].epoch;
  message.sess_uuid = of->asked.sess_uuid;
  raw_.send(*by->lines[0], numbers_.bent(trs::wire::bytes_of(message)));
}

inline void HostileClient::anything() {
  Path* const path = pick();
  if (path == nullptr) return;
  RawConnection* const by = path->lines[numbers_.below(3)].get();
  if (!HostilePath::usable(by)) return;
  const std::vector<std::byte> bytes = numbers_.take(numbers_.next<uint16_t>() % 300);
  const trs::wire::ChunkRegion to =
      path->chunks.empty() ? trs::wire::ChunkRegion{} : path->chunks[numbers_.below(kChunks)];
  switch (numbers_.below(3)) {
    case 0:
      return raw_.send(*by, bytes);
    case 1:
      return raw_.send_imm(*by, bytes, numbers_.next<uint32_t>());
    default:
      return raw_.write_imm(*by, bytes, to.address + numbers_.next<uint16_t>(), to.key,
                            numbers_.next<uint32_t>());
  }
}

inline void HostileClient::say_it_lives() {
  const auto how = numbers_.next<uint8_t>();
  // Where nobody receives them, all that wait go again with each that is refused.
  constexpr unsigned kWordsMax = 24;
  if (++words_ > kWordsMax) return world_.run_for(base::kMillisecond);
  const auto type = how == 0xfe      ? trs::ImmType::kNotice
                    : (how & 1) != 0 ? trs::ImmType::kHeartbeatAck
                                     : trs::ImmType::kHeartbeat;
  for (Path& path : paths_) {
    path.take_answers(raw_);
    for (auto& line : path.lines) {
      if (HostilePath::usable(line.get()))
        raw_.write_imm(*line, {}, 0, 0, trs::encode_imm({type, 0}));
    }
  }
  world_.run_for(140 * base::kMillisecond);
}

inline void HostileClient::drop() {
  Path* const path = pick();
  if (path == nullptr) return;
  auto& line = path->lines[numbers_.below(3)];
  if (line != nullptr && line->decided) line.reset();  // else its task refers to it
}

}  // namespace braid::fuzz
