// The program behind the listener of the target tcp_setup: it serves the honest peer at once, and
// does with the requests of others what the input has told it.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/tcp_hostile_peer.h"
#include "tests/fuzz/tcp_setup_process.h"

namespace braid::fuzz {

class SetupUser {
 public:
  static constexpr const char* kHonestIp = "10.0.0.2";
  static constexpr uint64_t kAcceptWithinNs = 5 * base::kSecond;  // the wire's own bound
  static constexpr uint64_t kLateNs = 50 * base::kMillisecond;    // of a reactor, at most
  static constexpr size_t kLinesMax = 24;
  static constexpr size_t kHeldMax = 16;

  SetupUser(SetupProcess& process, HostilePeer& hostile) : process_(process), hostile_(hostile) {}

  /// Listens at this address.
  void begin(const vhca::Address& address) {
    process_.listen(address, [this](auto request) { take(std::move(request)); });
  }

  // --- what the input chooses
  /// What becomes of hostile requests from now on.
  void be_told(Numbers& numbers) {
    way_ = static_cast<Way>(numbers.below(5));
    private_data_ = numbers.take(numbers.odd(4) ? numbers.next<uint8_t>() : 8);
    accept_ns_ = (1 + numbers.next<uint8_t>()) * 10 * base::kMillisecond;
  }
  /// Whatever still comes.
  void refuse() { way_ = Way::kReject; }
  void pause(bool on) {
    process_.pause(on);
    if (!on) awake_since_ns_ = process_.host.now_ns();
  }
  bool paused() const { return process_.paused; }
  uint64_t awake_since_ns() const { return awake_since_ns_; }
  /// The oldest that waits for it.
  void decide_one(bool accepts) {
    if (held_.empty()) return;
    auto request = std::move(held_.front());
    held_.pop_front();
    if (accepts) return accept(std::move(request), kNoBound);
    request->reject(private_data_);
  }

  // --- for the judge
  /// Holds for each request that was accepted, once its outcome is known.
  void judge() {
    for (auto& each : lines_) judge(*each);
    const auto served = [](const auto& guest) { return guest->over; };
    for (auto& guest : guests_) {
      if (served(guest)) guest->line->finish();
    }
    std::erase_if(guests_, served);
  }
  bool heard(uint64_t stamp) const { return heard_ == stamp; }
  /// How many streams the program has to answer for, but for those of the honest peer.
  size_t in_hand() const { return held_.size() + lines_.size(); }
  bool idle() const {
    return held_.empty() && guests_.empty() &&
           std::all_of(lines_.begin(), lines_.end(), [](const auto& l) { return l->decided; });
  }
  bool is_left() const {
    return std::all_of(lines_.begin(), lines_.end(), [](const auto& l) { return l->is_left(); });
  }
  void finish() {
    for (auto& line : lines_) line->finish();
    lines_.clear();
  }

 private:
  enum class Way : uint8_t { kAccept, kHold, kReject, kDrop, kAcceptForAWhile };
  struct Line : SetupLine {
    bool judged = false;
  };
  struct Guest {
    std::unique_ptr<SetupLine> line;
    bool over = false;
  };

  void take(std::unique_ptr<vhca::ConnectRequest> request) {
    const std::string peer = request->peer_text();
    if (peer.starts_with(std::string(kHonestIp) + ":")) return serve(std::move(request));
    require(hostile_.is_at(peer), "a request comes from somebody");
    const auto asked = FirstFrame::of(hostile_.line_of(peer).said);
    require(asked.has_value() && asked->is(tcp::FrameKind::kConnect), "a request was sent");
    require(std::ranges::equal(asked->private_data, request->private_data()),
            "a request has the private data that was sent");
    switch (way_) {
      case Way::kAccept:
        return accept(std::move(request), kNoBound);
      case Way::kAcceptForAWhile:
        return accept(std::move(request), accept_ns_);
      case Way::kHold:
        held_.push_back(std::move(request));
        if (held_.size() > kHeldMax) held_.pop_front();
        return;
      case Way::kReject:
        return request->reject(private_data_);
      case Way::kDrop:
        return;
    }
  }
  void accept(std::unique_ptr<vhca::ConnectRequest> request, uint64_t bound_ns) {
    if (lines_.size() == kLinesMax) {
      if (!lines_.front()->decided) return;  // too many: this one is rejected
      judge(*lines_.front());
      lines_.front()->finish();
      lines_.pop_front();
    }
    auto made = std::make_unique<Line>();
    process_.prepare(*made);
    made->request = std::move(request);
    Line& line = *made;
    lines_.push_back(std::move(made));
    const size_t bytes = std::min(private_data_.size(), tcp::kAcceptPrivateMax);
    process_.run(process_.accept(
        line, {private_data_.begin(), private_data_.begin() + static_cast<ptrdiff_t>(bytes)},
        bound_ns));
  }

  void judge(Line& line) {
    line.poll();
    if (!line.decided || std::exchange(line.judged, true)) return;
    require(line.decided_ns - line.begun_ns <= std::min(line.bound_ns, kAcceptWithinNs) + kLateNs,
            "accept() ends in time");
    if (line.connection == nullptr) return;
    HostileLine& its = hostile_.line_of(line.request->peer_text());
    its.hear();
    const auto asked = FirstFrame::of(its.said);
    require(line.qp->query().dest_qp_num == asked->body.qp_number,
            "a queue pair is connected to the one that asked");
    require(std::ranges::equal(asked->private_data, line.connection->peer_private_data()),
            "a connection has the private data that was sent");
    require(is_ready(asked->behind, its), "who is connected has said that he is ready");
    line.begin();
  }
  /// Only frames without data may come before that one.
  static bool is_ready(std::span<const std::byte> behind, const HostileLine& its) {
    for (; behind.size() >= sizeof(tcp::FrameHeader);
         behind = behind.subspan(sizeof(tcp::FrameHeader))) {
      const tcp::FrameHeader header = *HostileLine::header_of(behind);
      if (header.kind != static_cast<uint8_t>(tcp::FrameKind::kReady)) continue;
      return its.heard.size() < sizeof header || header.epoch == its.epoch();
    }
    return false;
  }

  void serve(std::unique_ptr<vhca::ConnectRequest> request) {
    guests_.push_back(std::make_unique<Guest>());
    Guest& guest = *guests_.back();
    guest.line = process_.make();
    guest.line->request = std::move(request);
    process_.run(serve(guest));
  }
  /// Hears one message.
  base::Task<void> serve(Guest& guest) {
    SetupLine& line = *guest.line;
    const auto asked = line.request->private_data();
    auto accepting = process_.accept(line, {asked.begin(), asked.end()}, kNoBound);
    co_await std::move(accepting);
    while (line.connection != nullptr && !line.received && !line.connection->disconnected()) {
      co_await process_.reactor->sleep_ns(100 * base::kMicrosecond);
      line.poll();
    }
    if (line.received) heard_ = line.heard();
    guest.over = true;
  }

  static constexpr uint64_t kNoBound = base::kNever;
  SetupProcess& process_;
  HostilePeer& hostile_;
  Way way_ = Way::kAccept;
  std::vector<std::byte> private_data_ = std::vector<std::byte>(8);
  uint64_t accept_ns_ = 0;
  uint64_t awake_since_ns_ = 0;
  std::deque<std::unique_ptr<vhca::ConnectRequest>> held_;
  std::deque<std::unique_ptr<Line>> lines_;
  std::deque<std::unique_ptr<Guest>> guests_;
  uint64_t heard_ = 0;
};

}  // namespace braid::fuzz
