// The connection set-up of the TCP wire between processes that ship and a hostile peer on raw
// streams (tcp_hostile_peer.h), who connects to their listener and is connected to by them. An
// honest peer connects beside him all the time: it is let in, and its message arrives, in time.
// Each connect and each accept ends in time, and well only if the other one said what is told of
// him. In the end nothing of him is left.
//   first byte  bit 0: ports may have faults. Bit 1: the hostile peer stays when the listener's
//               program lets go of him. Bit 2: the listener is closed before its program decides
//               what it has taken. Bits 3 to 5: the world's seed, which cuts the streams
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "tests/fuzz/reached.h"
#include "tests/fuzz/tcp_hostile_peer.h"
#include "tests/fuzz/tcp_setup_process.h"
#include "tests/fuzz/tcp_setup_user.h"
#include "tests/fuzz/two_party.h"

namespace {

using braid::base::kMicrosecond;
using braid::base::kMillisecond;
using braid::base::kSecond;
using braid::base::Task;
using braid::fuzz::FirstFrame;
using braid::fuzz::HostileLine;
using braid::fuzz::HostilePeer;
using braid::fuzz::HostileProcess;
using braid::fuzz::Numbers;
using braid::fuzz::require;
using braid::fuzz::SetupLine;
using braid::fuzz::SetupProcess;
using braid::fuzz::SetupUser;
using braid::fuzz::start;
namespace sim = braid::base::sim;
namespace tcp = braid::vhca::soft::tcp;

constexpr const char* kServerIp = "10.0.0.1";
constexpr const char* kHostileIp = HostilePeer::kIps[0];
constexpr uint64_t kServedWithinNs = 500 * kMillisecond;
constexpr uint64_t kHonestPatienceNs = 2 * kSecond;
constexpr size_t kCandidatesOfOneAddress = 128;
constexpr size_t kCandidates = 256 + SetupProcess::kBacklog;
constexpr size_t kGuests = 4;  // of the honest peer: one, and those that it gave up

/// Counts the lines that the listener writes about who does not know its language, by address.
class Lines final : public braid::base::LogSink {
 public:
  void write(braid::base::LogLevel, std::string_view, std::string_view line) override {
    constexpr std::string_view kSays = "refused a connection from ";
    if (!line.starts_with(kSays)) return;
    line.remove_prefix(kSays.size());
    ++refusals[std::string(line.substr(0, line.find(':')))];
  }
  std::map<std::string, uint64_t> refusals;
};

braid::fuzz::Reached dial_failed("connect() fails"), dial_rejected("it is rejected"),
    dial_accepted("it is accepted"), taken("the listener takes a hostile request"),
    refused_in_log("it tells of one who does not know its language");

class Game {
 public:
  explicit Game(const Numbers& numbers)
      : numbers_(numbers), how_(numbers_.below(64)), world_(options()) {
    const bool faults = (how_ & 1) != 0;
    server_ = start<SetupProcess>(world_, "server", kServerIp, kServerIp, faults);
    honest_ =
        start<SetupProcess>(world_, "honest", SetupUser::kHonestIp, SetupUser::kHonestIp, faults);
    auto* const its = start<HostileProcess>(world_, "hostile", kHostileIp);
    hostile_ = std::make_unique<HostilePeer>(world_, its->host, numbers_, kListener);
    user_ = std::make_unique<SetupUser>(*server_, *hostile_);
    user_->begin(kListener);
    begun_ns_ = world_.now_ns();
  }

  void play() {
    honest_one_is_served();
    for (unsigned steps = 0; !numbers_.empty() && steps < 200; ++steps) {
      step();
      judge();
    }
    end();
  }

 private:
  inline static const braid::vhca::Address kListener{kServerIp, 1234};
  struct Dial : SetupLine {
    size_t ear = 0;
    bool judged = false;
  };
  /// Of the honest peer: connects until it is let in, says a number, is heard, and goes.
  struct Round {
    uint64_t begun_ns = 0, over_ns = 0;
    bool over = true;
  };

  sim::SimWorldOptions options() const {
    return {.seed = 1 + how_ / 8, .timing = {}, .log_sink = log_};
  }

  void step() {
    switch (numbers_.below(16)) {
      case 0:
      case 1:
        return hostile_->come_in();
      case 2:
      case 3:
        return hostile_->speak();
      case 4:
        return hostile_->go_on();
      case 5:
        return hostile_->end_one();
      case 6:
        return siege();
      case 7:
      case 8:
        return dial();
      case 9:
        return hostile_->answer();
      case 10:
        return user_->be_told(numbers_);
      case 11:
        if (numbers_.odd(4)) return user_->pause(!user_->paused());
        return user_->decide_one(!numbers_.odd(4));
      case 12:
        return disturb();
      case 13:
        return honest_begins();
      case 14:
        return world_.run_for(numbers_.next<uint8_t>() * 10 * kMicrosecond);
      default:
        return braid::fuzz::pass_time(world_, numbers_);
    }
  }
  void disturb() {
    disturbed_ = true;
    const std::string other = numbers_.flag() ? SetupUser::kHonestIp : kServerIp;
    braid::fuzz::disturb(world_, numbers_, kHostileIp, other);
  }
  /// However many come, the listener keeps few. Where the network does as it should, nothing else
  /// of theirs is left at the server's machine.
  void siege() {
    hostile_->siege();
    if (disturbed_) return;
    world_.run_for(SetupUser::kLateNs);
    const auto all = world_.fabric().open_ends();
    const size_t in_hand = SetupProcess::kBacklog + user_->in_hand();
    for (const char* const ip : HostilePeer::kIps) {
      require(
          ends(all, "server", std::string(", to ") + ip + ":") <= kCandidatesOfOneAddress + in_hand,
          "the listener keeps few of one address");
    }
    require(ends(all, "server") <= kCandidates + in_hand + kGuests, "and few of all");
  }
  static size_t ends(const std::vector<std::string>& all, const std::string& process,
                     const std::string& to = "") {
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const std::string& end) {
      return end.starts_with(process + " of ") && end.find(to) != std::string::npos;
    }));
  }
  bool nothing_is_left() {
    const auto all = world_.fabric().open_ends();
    return ends(all, "server") + ends(all, "honest") == 0;
  }

  // --- the honest process connects to the hostile one

  void dial() {
    const auto ear = hostile_->listen();
    if (!ear.has_value()) return;
    auto made = std::make_unique<Dial>();
    made->ear = *ear;
    honest_->prepare(*made);
    Dial& line = *made;
    dials_.push_back(std::move(made));
    const uint64_t timeout_ns = (1 + numbers_.next<uint8_t>()) * 8 * kMillisecond;
    honest_->run(
        honest_->connect(line, HostilePeer::address_of(*ear), numbers_.take(8), timeout_ns));
    if (numbers_.odd(4)) return;
    world_.run_for(50 * kMicrosecond);
    hostile_->answer();
    world_.run_for(50 * kMicrosecond);
  }
  void judge(Dial& line) {
    line.poll();
    if (!line.decided || std::exchange(line.judged, true)) return;
    require(line.decided_ns - line.begun_ns <= line.bound_ns + SetupUser::kLateNs,
            "connect() ends in time");
    dial_failed.count(line.error.has_value());
    if (line.error.has_value()) return require(!line.error->message().empty(), "with a reason");
    HostileLine* const its = hostile_->line_of(line.ear);
    require(its != nullptr, "who answers has been connected to");
    const auto said = FirstFrame::of(its->said);
    require(said.has_value(), "who answers has said something");
    (line.connection == nullptr ? dial_rejected : dial_accepted).count();
    if (line.connection == nullptr) {
      require(said->is(tcp::FrameKind::kReject) && said->header.status == 0, "it was rejected");
      require(line.refusal == said->private_data, "a rejection has the private data of its sender");
      return;
    }
    require(said->is(tcp::FrameKind::kAccept), "it was accepted");
    require(line.qp->query().dest_qp_num == said->body.qp_number,
            "a queue pair is connected to the one that accepted it");
    require(std::ranges::equal(said->private_data, line.connection->peer_private_data()),
            "a connection has the private data of who accepted");
    line.begin();
  }

  // --- the honest process connects to the listener

  void honest_begins() {
    if (!round_.over) return;
    round_ = {.begun_ns = world_.now_ns(), .over = false};
    honest_->run(honest_round());
  }
  Task<void> honest_round() {
    const uint64_t stamp = ++stamp_;
    const std::vector<std::byte> said = braid::fuzz::to_bytes(stamp);
    std::unique_ptr<SetupLine> line;
    for (;;) {
      line = honest_->make();
      auto connecting = honest_->connect(*line, kListener, said, kHonestPatienceNs);
      co_await std::move(connecting);
      if (line->connection != nullptr) break;
      line->finish();
      co_await honest_->reactor->sleep_ns(50 * kMillisecond);
    }
    require(std::ranges::equal(line->connection->peer_private_data(), said),
            "the honest one is answered as itself");
    line->send(stamp);
    while (!user_->heard(stamp)) co_await honest_->reactor->sleep_ns(100 * kMicrosecond);
    line->finish();
    round_.over_ns = world_.now_ns();
    round_.over = true;
  }
  /// Since somebody takes requests.
  uint64_t round_due_ns() const {
    return std::max(round_.begun_ns, user_->awake_since_ns()) + kServedWithinNs;
  }
  void honest_one_is_served() {
    if (user_->paused()) user_->pause(false);
    for (int rounds = 0; rounds < 2; ++rounds) {  // that which is under way, and a new one
      const uint64_t due_ns = round_due_ns();
      const uint64_t left_ns = due_ns > world_.now_ns() ? due_ns - world_.now_ns() : 0;
      world_.run_until([this] { return round_.over; }, left_ns);
      judge_round();
      if (rounds == 0) honest_begins();
    }
  }
  void judge_round() const {
    if (user_->paused()) return;
    const uint64_t until_ns = round_.over ? round_.over_ns : world_.now_ns();
    require(until_ns <= round_due_ns() || round_.begun_ns == 0, "the honest one is served in time");
  }

  void judge() {
    user_->judge();
    for (auto& line : dials_) judge(*line);
    judge_round();
    taken.count(user_->in_hand() > 0);
    refused_in_log.count(!log_->refusals.empty());
    const uint64_t refilled = (world_.now_ns() - begun_ns_) * 10 / kSecond;
    for (const auto& [ip, lines] : log_->refusals) {
      require(lines <= 11 + refilled, "who comes again and again fills no log");
    }
  }

  // --- the end

  void end() {
    world_.fabric().heal_all();
    user_->pause(false);
    world_.run_for(100 * kMillisecond);
    honest_one_is_served();
    if ((how_ & 4) != 0) close();
    user_->refuse();
    for (size_t i = 0; i < SetupUser::kHeldMax + SetupProcess::kBacklog; ++i) {
      user_->decide_one(i % 4 != 3);
    }
    const auto decided = [this] {
      user_->judge();
      return user_->idle() && std::all_of(dials_.begin(), dials_.end(),
                                          [](const auto& line) { return line->decided; });
    };
    require(world_.run_until(decided, SetupUser::kAcceptWithinNs + kSecond), "all is decided");
    judge();
    if ((how_ & 2) == 0) {
      hostile_->leave();
      // The end of a stream can be lost once for all: a network that does as it should comes first.
      const bool heard = world_.run_until([this] { return all_are_left(); }, 10 * kSecond);
      require(heard || disturbed_, "who is left hears of it");
    }
    user_->finish();
    for (auto& line : dials_) line->finish();
    dials_.clear();  // a queue pair keeps its stream
    for (int i = 0; i < 100 && !nothing_is_left(); ++i) world_.run_for(kSecond / 5);
    require(nothing_is_left(), "nothing of the hostile peer is left");
    if (server_->listener != nullptr) {
      honest_one_is_served();
      close();
    }
  }
  bool all_are_left() const {
    return user_->is_left() && std::all_of(dials_.begin(), dials_.end(),
                                           [](const auto& line) { return line->is_left(); });
  }
  void close() {
    server_->listener.reset();
    server_->reactor->wake();
    require(world_.run_until([this] { return !server_->taking; }, kSecond),
            "who waits for requests hears that the listener is closed");
  }

  Numbers numbers_;
  const uint32_t how_;
  const std::shared_ptr<Lines> log_ = std::make_shared<Lines>();
  sim::SimWorld world_;
  SetupProcess* server_ = nullptr;
  SetupProcess* honest_ = nullptr;
  std::unique_ptr<HostilePeer> hostile_;
  std::unique_ptr<SetupUser> user_;  // goes before its process
  std::deque<std::unique_ptr<Dial>> dials_;
  Round round_;
  uint64_t stamp_ = 0;
  uint64_t begun_ns_ = 0;
  bool disturbed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  Game(Numbers({data, size_bytes})).play();
  return 0;
}
