// The control socket that ships (a thread of its own, an abstract unix name) and callers by raw
// bytes: lines whole, cut, pipelined, too long or bent; ids and parameters of any kind; callers
// that do not read, that hang up in mid-line or in mid-call, that stop after half a call, or come
// in crowds. Each call is answered once, in order, with its own id and what its method says; what
// is no call is refused in one line of words; in the end another caller is served, and no
// descriptor is left.
//   first byte  one of 16: a line of megabytes may come
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/fuzz/control_caller.h"
#include "tests/fuzz/control_node.h"
#include "tests/fuzz/reached.h"
#include "tests/fuzz/two_party.h"

namespace {

using braid::fuzz::CallPtr;
using braid::fuzz::ControlCaller;
using braid::fuzz::ControlNode;
using braid::fuzz::Numbers;
using braid::fuzz::Reached;
using braid::fuzz::require;
using Clock = std::chrono::steady_clock;
namespace cli = braid::cli;

// Far beyond what it takes on a machine with other work to do.
constexpr auto kPatience = std::chrono::seconds(30);
constexpr size_t kCallers = 3;
constexpr size_t kEverything = SIZE_MAX;
// More than the node reads at a time: it sees no end.
constexpr size_t kTooLongBytes = 65536;
constexpr const char* kPlain = R"({"jsonrpc":"2.0","id":1,"method":"echo"})";

braid::fuzz::Verdicts calls("call");
Reached huge_id("an id above 2^63"), long_call("a call of 4 MiB"), too_long("a line too long"),
    answered_late("a held call is answered"), gone_in_call("a caller is gone in its call"),
    gone_in_line("a caller is gone in mid-line"), half_call("a call without its end"),
    crowded("more callers than a node takes");

/// One server for all inputs.
struct Shipping {
  Shipping() : name("fuzz." + std::to_string(::getpid())) {
    auto claimed = cli::ControlServer::claim(name, cli::kRpcLineMax);
    require(claimed.ok(), "the name is free");
    server = std::move(*claimed);
    require(server->serve([this](CallPtr call) { node.take(std::move(call)); }).ok(), "it serves");
  }
  const std::string name;
  ControlNode node;
  std::unique_ptr<cli::ControlServer> server;
};

template <size_t kCount>
std::string one_of(Numbers& numbers, const char* const (&texts)[kCount]) {
  return texts[numbers.below(kCount)];
}

std::string any_value(Numbers& numbers) {
  return one_of(numbers, {"\"x\"", "3", "0", "9", "-1", "true", "null", "[]", "{}", "1.5",
                          "18446744073709551615", "\"\\u00e9\\n\\\"\""});
}

/// The game of one input.
class Game {
 public:
  Game(Shipping& shipping, Numbers numbers)
      : shipping_(shipping), numbers_(numbers), megabytes_(numbers_.odd(16) ? 2 : 0) {}

  void play() {
    const size_t before = descriptors();
    for (unsigned steps = 0; !numbers_.empty() && steps < 60; ++steps) step();
    serve_another();
    settle();
    for (const auto& caller : callers_) {
      if (caller != nullptr && !caller->ending()) caller->stop("");
    }
    settle();
    for (auto& caller : callers_) caller.reset();
    // The node reads in pieces what callers who are gone have left: up to a socket's buffer.
    bool left = true;
    for (int i = 0; i < 32 && left; ++i) left = descriptors() != before;
    require(!left, "nothing is left of them");
  }

 private:
  void step() {
    auto& caller = callers_[numbers_.below(kCallers)];
    if (caller != nullptr && caller->ending()) settle();
    if (caller == nullptr || caller->over()) {
      caller = std::make_unique<ControlCaller>(shipping_.name, ++serials_);
    }
    switch (numbers_.below(12)) {
      case 0:
      case 1:
      case 2:
        say(*caller);
        return caller->send(kEverything);
      case 3:
        say(*caller);
        return caller->send(numbers_.next<uint8_t>());
      case 4:
        return say(*caller);  // more may follow in one piece
      case 5:
        return caller->send(numbers_.next<uint8_t>());
      case 6:
        return caller->receive(numbers_.next<uint16_t>());
      case 7:
        half_call.count();
        return caller->stop(braid::fuzz::kUnended);
      case 8:
        return hang_up(caller);
      case 9:
        take_held();
        if (!held_.empty()) answer(numbers_.below(static_cast<uint32_t>(held_.size())));
        return;
      case 10:
        return settle();
      default:
        if (numbers_.odd(8)) crowd();
        return;
    }
  }

  // --- what is said

  void say(ControlCaller& caller) {
    if (caller.ending()) return;
    std::string line = any_line(caller);
    if (megabytes_ > 0 && numbers_.odd(4)) {
      --megabytes_;
      const bool more = numbers_.flag();
      (more ? too_long : long_call).count();
      line.resize(cli::kRpcLineMax + (more ? kTooLongBytes : 0), ' ');
    }
    calls.count(caller.say(line));
  }
  std::string any_line(const ControlCaller& caller) {
    const std::string id = any_id();
    const bool holds = numbers_.odd(6);
    const std::string method = holds ? "\"hold\"" : any_method();
    const std::string params =
        holds ? "{\"serial\":" + std::to_string(caller.serial()) + "}" : any_params();
    std::string line = numbers_.odd(16) ? "{\"jsonrpc\":\"1.0\"" : "{\"jsonrpc\":\"2.0\"";
    if (!id.empty()) line += ",\"id\":" + id;
    line += ",\"method\":" + method;
    if (!params.empty()) line += ",\"params\":" + params;
    line += "}";
    if (holds) return line;  // whose serial is, is relied on
    const auto bent = numbers_.bent(std::as_bytes(std::span(line)));
    line.assign(reinterpret_cast<const char*>(bent.data()), bent.size());
    std::replace(line.begin(), line.end(), '\n', ' ');
    return line;
  }
  std::string any_id() {
    const uint32_t how = numbers_.below(16);
    if (how < 8) return std::to_string(++ids_);
    huge_id.count(how == 8 || how == 9);
    if (how == 8) return "9223372036854775808";
    if (how == 9) return "18446744073709551615";
    return one_of(numbers_, {"0", "-1", "-9223372036854775808", "9223372036854775807",
                             "18446744073709551616", "\"7\"", "null", "1.0", "1e2", "true", ""});
  }
  std::string any_method() {
    if (megabytes_ > 0 && numbers_.odd(4)) {
      --megabytes_;
      return "\"too_long\"";
    }
    if (numbers_.odd(16)) return "\"large\"";
    return one_of(numbers_, {"\"echo\"", "\"typed\"", "\"typed\"", "\"fail\"", "\"drop\"", "7"});
  }
  std::string any_params() {
    switch (numbers_.below(8)) {
      case 0:
        return "";
      case 1:
        return any_value(numbers_);
      case 2: {
        const size_t depth = numbers_.flag() ? 8 : 4 * cli::kRpcDepthMax;
        return "{\"deep\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
      }
      case 3:
        return "{\"any\":" + any_value(numbers_) + "}";
      default:
        return "{\"name\":" + any_value(numbers_) + ",\"count\":" + any_value(numbers_) +
               ",\"force\":" + (numbers_.odd(3) ? any_value(numbers_) : "true") + "}";
    }
  }

  // --- calls that the node keeps

  void take_held() {
    for (CallPtr& call : shipping_.node.take_held()) held_.push_back(std::move(call));
  }
  static uint64_t serial_of(const CallPtr& call) {
    return nlohmann::json::parse(call->rpc().params).value("serial", uint64_t{0});
  }
  void answer(size_t which) {
    const CallPtr call = held_[which];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
    const uint64_t serial = serial_of(call);
    const bool there = std::any_of(callers_.begin(), callers_.end(), [&](const auto& caller) {
      return caller != nullptr && caller->serial() == serial;
    });
    require(serial == 0 || call->caller_gone() != there, "the node knows who still waits");
    answered_late.count(there);
    call->answer(ControlNode::answer_of(call->rpc()));
  }
  /// Waits until the node keeps its call; false: the answer is on its way already.
  bool is_kept(const ControlCaller& caller) {
    const auto its = [&](const CallPtr& call) { return serial_of(call) == caller.serial(); };
    const auto deadline = Clock::now() + kPatience;
    for (;;) {
      take_held();
      if (std::any_of(held_.begin(), held_.end(), its)) return true;
      pollfd wait[] = {caller.wait_for(), {shipping_.node.held_fd(), POLLIN, 0}};
      (void)::poll(wait, 2, 1000);
      if (wait[0].fd < 0 || wait[0].revents != 0) return false;
      require(Clock::now() < deadline, "a call is handed over in time");
    }
  }
  void hang_up(std::unique_ptr<ControlCaller>& caller) {
    gone_in_call.count(caller->waits_for_kept() && is_kept(*caller));
    gone_in_line.count(caller->in_line());
    caller.reset();
  }

  // --- all of them

  /// More than the node takes: it closes who was idle for longest.
  void crowd() {
    crowded.count();
    for (const auto& caller : callers_) {
      if (caller != nullptr) caller->may_be_closed();
    }
    std::list<ControlCaller> others;
    for (size_t i = 0; i < cli::kControlConnectionsMax + 4; ++i) {
      others.emplace_back(shipping_.name, ++serials_);
      others.back().may_be_closed();
    }
    others.back().say(kPlain);
    settle({&others.back()});
    require(!others.back().over(), "who comes last is served");
  }
  void settle() {
    std::vector<ControlCaller*> all;
    for (const auto& caller : callers_) {
      if (caller != nullptr) all.push_back(caller.get());
    }
    settle(all);
  }
  /// Until each has all its answers; calls that are kept are answered meanwhile.
  void settle(const std::vector<ControlCaller*>& all) {
    const auto deadline = Clock::now() + kPatience;
    std::vector<pollfd> wait;
    for (;;) {
      take_held();
      while (!held_.empty()) answer(0);
      wait.assign(1, {shipping_.node.held_fd(), POLLIN, 0});
      bool settled = true;
      for (ControlCaller* const caller : all) {
        caller->send(kEverything);
        caller->receive(kEverything);
        settled = settled && caller->settled();
        wait.push_back(caller->wait_for());
      }
      if (settled) return;
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      require(left > 0, "each call is answered in time");
      (void)::poll(wait.data(), wait.size(), static_cast<int>(left));
    }
  }
  /// Whatever the others do, and the calls of theirs that are kept. The caller stays connected.
  std::unique_ptr<ControlCaller> serve_another() {
    auto another = std::make_unique<ControlCaller>(shipping_.name, ++serials_);
    // When the second is answered, the node is through with what it saw before the first.
    for (int i = 0; i < 2; ++i) {
      another->say(kPlain);
      const auto deadline = Clock::now() + kPatience;
      for (another->send(kEverything); !another->settled(); another->receive(kEverything)) {
        require(Clock::now() < deadline, "another caller is served");
        pollfd wait = another->wait_for();
        (void)::poll(&wait, 1, 1000);
      }
    }
    return another;
  }
  /// Of this process, with one caller beside those of the game.
  size_t descriptors() {
    serve_another();
    take_held();  // of those that are gone
    while (!held_.empty()) answer(0);
    const auto another = serve_another();
    namespace fs = std::filesystem;
    return static_cast<size_t>(
        std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
  }

  Shipping& shipping_;
  Numbers numbers_;
  int megabytes_;  // lines of so many may still come
  uint64_t ids_ = 0, serials_ = 0;
  std::array<std::unique_ptr<ControlCaller>, kCallers> callers_;
  std::vector<CallPtr> held_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  static Shipping shipping;
  Game(shipping, Numbers({data, size_bytes})).play();
  return 0;
}
