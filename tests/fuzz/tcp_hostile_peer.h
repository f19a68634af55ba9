// A hostile peer of the TCP wire's connection set-up, on raw streams: it connects and is connected
// to, and says what the input chooses, the ordinary way but for what the input bends, cuts, keeps
// back or leaves out. What it said is kept for judgement.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/stream_socket.h"
#include "tests/fuzz/tcp_hostile_line.h"
#include "tests/fuzz/two_party.h"
#include "vhca/device.h"
#include "vhca/soft/tcp/frames.h"

namespace braid::fuzz {

struct HostileProcess final : base::sim::SimProgram {
  explicit HostileProcess(base::sim::SimHost& process) : host(process) {}
  base::sim::SimHost& host;
};

class HostilePeer {
 public:
  static constexpr std::array<const char*, 3> kIps = {"10.0.0.3", "10.0.0.4", "10.0.0.5"};
  static constexpr size_t kLinesMax = 300;
  static constexpr size_t kStreamsMax = 800;  // of an input: each is work
  static constexpr size_t kEarsMax = 24;

  HostilePeer(base::sim::SimWorld& world, base::sim::SimHost& host, Numbers& numbers,
              vhca::Address listener)
      : world_(world), host_(host), numbers_(numbers), to_{listener.ip, listener.port} {
    for (size_t i = 1; i < kIps.size(); ++i) world_.fabric().add_port(host_.machine(), kIps[i]);
  }

  // --- as initiator
  void come_in() {
    HostileLine* const line = open(numbers_.odd(8) ? numbers_.below(3) : 0);
    if (line == nullptr) return;
    if (!numbers_.odd(16)) world_.run_for(20 * base::kMicrosecond);
    say(*line, cm(tcp::FrameKind::kConnect));
    if (numbers_.odd(8)) return;
    world_.run_for(50 * base::kMicrosecond);
    line->hear();
    if (!numbers_.odd(8)) say(*line, plain(tcp::FrameKind::kReady, *line));
  }
  /// Many at once, silent, or all with the same bytes.
  void siege() {
    const size_t count = numbers_.next<uint8_t>();
    const size_t ip = numbers_.below(3);
    const uint32_t how = numbers_.below(4);
    const std::vector<std::byte> bytes =
        how == 0   ? std::vector<std::byte>{}
        : how == 1 ? numbers_.take(64)
                   : cm(how == 2 ? tcp::FrameKind::kConnect : tcp::FrameKind::kAccept);
    for (size_t i = 0; i < count; ++i) {
      HostileLine* const line = open(ip);
      if (line == nullptr) return;
      line->rest = bytes;
    }
    world_.run_for(20 * base::kMicrosecond);
    size_t left = std::min(count, lines_.size());
    for (auto each = lines_.rbegin(); left > 0; ++each, --left) (*each)->say((*each)->rest.size());
  }

  // --- as acceptor
  /// Where somebody may connect to, once: the ear's number. Nothing: no more of them.
  std::optional<size_t> listen() {
    if (ears_.size() == kEarsMax) return {};
    auto& ear = ears_.emplace_back();
    const uint16_t port = static_cast<uint16_t>(kFirstEar + ears_.size());
    if (!numbers_.odd(16)) ear.listener = std::move(*host_.listen_stream({kIps[0], port}, 4));
    return ears_.size() - 1;
  }
  static vhca::Address address_of(size_t ear) {
    return {kIps[0], static_cast<uint16_t>(kFirstEar + ear + 1)};
  }
  void answer() {
    if (ears_.empty()) return;
    const size_t back = numbers_.below(4);
    answer(ears_[ears_.size() - 1 - back % ears_.size()]);
  }
  /// What was said on the stream that came to this ear.
  HostileLine* line_of(size_t ear) { return ears_[ear].line.get(); }

  // --- either
  /// A frame of the connection manager, a frame of a connection, or bytes.
  void speak() {
    HostileLine* const line = pick();
    if (line == nullptr) return;
    switch (numbers_.below(4)) {
      case 0:
        return say(*line, plain(static_cast<tcp::FrameKind>(4 + numbers_.below(10)), *line));
      case 1:
        return say(*line, cm(static_cast<tcp::FrameKind>(1 + numbers_.below(3))));
      case 2:
        return say(*line, message(*line));
      default:
        return say(*line, numbers_.take(numbers_.next<uint8_t>()));
    }
  }
  void go_on() {
    HostileLine* const line = pick();
    if (line == nullptr) return;
    line->hear();
    line->say(std::min<size_t>(line->rest.size(), 1 + numbers_.next<uint8_t>()));
  }
  void end_one() {
    HostileLine* const line = pick();
    if (line == nullptr || line->socket == nullptr) return;
    switch (numbers_.below(3)) {
      case 0:
        return line->socket->shut_down_send();
      case 1:
        return line->socket->shut_down();
      default:
        line->socket.reset();
    }
  }
  void leave() {
    for (auto& line : lines_) line->socket.reset();
    for (Ear& ear : ears_) {
      if (ear.line != nullptr) ear.line->socket.reset();
      ear.listener.reset();
    }
  }
  bool is_at(const std::string& peer_text) const { return by_text_.contains(peer_text); }
  HostileLine& line_of(const std::string& peer_text) { return *by_text_.at(peer_text); }

 private:
  static constexpr uint16_t kFirstEar = 4000;
  struct Ear {
    std::unique_ptr<base::StreamListener> listener;
    std::unique_ptr<HostileLine> line;
  };

  HostileLine* open(size_t ip) {
    if (by_text_.size() >= kStreamsMax) return nullptr;
    auto socket = host_.connect_stream(kIps[ip], to_);
    require(socket.ok(), "a simulated process can connect");
    auto line = std::make_shared<HostileLine>();
    line->socket = std::move(*socket);
    const base::SocketAddress at = line->socket->local();
    by_text_[at.ip + ":" + std::to_string(at.port)] = line;
    lines_.push_back(line);
    if (lines_.size() > kLinesMax) {
      lines_.front()->socket.reset();
      lines_.pop_front();
    }
    return line.get();
  }
  /// Accept, mostly, or what else an initiator may hear.
  void answer(Ear& ear) {
    if (ear.line == nullptr && ear.listener != nullptr) {
      auto came = ear.listener->accept();
      if (!came.ok()) return;
      ear.line = std::make_unique<HostileLine>();
      ear.line->socket = std::move(*came);
      ear.line->accepts = true;
    }
    if (ear.line == nullptr) return;
    ear.line->hear();
    static constexpr std::array kKinds = {tcp::FrameKind::kAccept, tcp::FrameKind::kAccept,
                                          tcp::FrameKind::kReject, tcp::FrameKind::kConnect};
    say(*ear.line, cm(kKinds[numbers_.below(4)]));
  }
  /// Mostly the newest.
  HostileLine* pick() {
    const uint32_t which = numbers_.below(16);
    if (which >= 12 && !ears_.empty()) return ears_[which % ears_.size()].line.get();
    if (lines_.empty()) return nullptr;
    const size_t back = which < 6 ? 0 : numbers_.below(64);
    return lines_[lines_.size() - 1 - back % lines_.size()].get();
  }
  /// Whole, or a part of it, behind what was kept back.
  void say(HostileLine& line, const std::vector<std::byte>& bytes) {
    append(line.rest, bytes);
    const size_t all = line.rest.size();
    line.say(numbers_.odd(8) ? numbers_.next<uint16_t>() % (all + 1) : all);
  }
  std::vector<std::byte> cm(tcp::FrameKind kind) {
    const uint32_t qp_number = numbers_.odd(8) ? numbers_.next<uint32_t>() : 77;
    const size_t private_bytes = numbers_.odd(4) ? numbers_.next<uint8_t>() : 8;
    const std::vector<std::byte> private_data = numbers_.take(private_bytes);
    const auto reason = static_cast<tcp::RejectReason>(numbers_.below(4));
    std::vector<std::byte> frame =
        tcp::encode_cm(kind, HostileLine::kEpoch, qp_number, private_data, reason);
    if (numbers_.odd(8)) {
      // Lengths that do not fit: of the frame, or of its private data.
      const size_t at = numbers_.flag()
                            ? offsetof(tcp::FrameHeader, length)
                            : sizeof(tcp::FrameHeader) + offsetof(tcp::CmBody, private_bytes);
      frame[at] = static_cast<std::byte>(numbers_.next<uint8_t>());
    }
    return numbers_.bent(frame);
  }
  tcp::FrameHeader header(tcp::FrameKind kind, const HostileLine& line) {
    tcp::FrameHeader made;
    made.magic = tcp::kFrameMagic;
    made.version = tcp::kFrameVersion;
    made.kind = static_cast<uint8_t>(kind);
    made.epoch = numbers_.odd(8) ? numbers_.next<uint32_t>() : line.epoch();
    return made;
  }
  std::vector<std::byte> plain(tcp::FrameKind kind, const HostileLine& line) {
    tcp::FrameHeader made = header(kind, line);
    if (kind == tcp::FrameKind::kError || kind == tcp::FrameKind::kPort) {
      made.status = numbers_.next<uint8_t>();
    }
    return numbers_.bent(to_bytes(made));
  }
  /// A SEND.
  std::vector<std::byte> message(HostileLine& line) {
    tcp::FrameHeader made = header(tcp::FrameKind::kRequest, line);
    const std::vector<std::byte> data = numbers_.take(numbers_.next<uint8_t>() % 100);
    made.opcode = IBV_WR_SEND;
    made.length = data.size();
    made.requested = static_cast<uint32_t>(data.size());
    made.sequence = line.sequence++;
    std::vector<std::byte> bytes = to_bytes(made);
    append(bytes, data);
    return numbers_.bent(bytes);
  }

  base::sim::SimWorld& world_;
  base::sim::SimHost& host_;
  Numbers& numbers_;
  const base::SocketAddress to_;
  std::deque<std::shared_ptr<HostileLine>> lines_;
  std::map<std::string, std::shared_ptr<HostileLine>> by_text_;
  std::deque<Ear> ears_;
};

}  // namespace braid::fuzz
