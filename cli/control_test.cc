// A node answers calls on its control socket, and nothing is left of it when it ends.
#include "cli/control.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/control_socket.h"

namespace braid::cli {
namespace {

using base::Errc;
using nlohmann::json;

std::string unique_name(const char* what) {
  return "test." + std::to_string(getpid()) + "." + what;
}

using CallPtr = std::shared_ptr<ControlCall>;

void echo(const CallPtr& call) {
  if (call->rpc().method == "fail") return call->answer(base::Error(Errc::kBusy, "held by vm1"));
  call->answer(json{{"method", call->rpc().method}, {"params", json::parse(call->rpc().params)}});
}

base::Result<std::unique_ptr<ControlServer>> start(const std::string& name,
                                                   ControlServer::Handler handler = echo) {
  BRAID_TRY(auto server, ControlServer::claim(name));
  BRAID_CHECK(server->serve(std::move(handler)));
  return server;
}

/// A caller of the test's own, for what `braid` does not do.
class RawCaller {
 public:
  explicit RawCaller(const std::string& name) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    connect(name);
  }
  RawCaller() : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {}
  ~RawCaller() { hang_up(); }
  void connect(const std::string& name) {
    auto to = control_address(name);
    ASSERT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to->address), to->length_bytes), 0)
        << strerror(errno);
  }
  void send(const std::string& text) {
    ASSERT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void call(const char* method, const json& params = json::object()) {
    send(*encode_call(1, method, params) + "\n");
  }
  /// Empty at the end of the stream.
  std::string line() {
    std::string text;
    char c = 0;
    while (::recv(fd_, &c, 1, 0) == 1 && c != '\n') text += c;
    return text;
  }
  base::Result<json> answer() { return parse_answer(line(), 1); }
  void stop_sending() { ::shutdown(fd_, SHUT_WR); }
  void hang_up() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

/// Calls that a test answers when it wants to.
struct Kept {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<CallPtr> calls;
  ControlServer::Handler handler() {
    return [this](CallPtr call) {
      const std::lock_guard lock(mutex);
      calls.push_back(std::move(call));
      changed.notify_all();
    };
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return calls.size() >= count; });
  }
};

TEST(Control, a_call_is_answered_with_its_result_or_its_error) {
  const std::string name = unique_name("answers");
  auto server = start(name);
  ASSERT_TRUE(server.ok()) << server.error().message();
  auto answer = call_node(name, "show", {{"name", "x"}});
  ASSERT_TRUE(answer.ok()) << answer.error().message();
  EXPECT_EQ((*answer)["params"]["name"], "x");
  auto failed = call_node(name, "fail", json::object());
  EXPECT_EQ(failed.code(), Errc::kBusy);
  EXPECT_EQ(failed.error().message(), "held by vm1");
}

TEST(Control, a_name_is_held_once_and_free_after_the_node) {
  const std::string name = unique_name("held");
  auto server = start(name);
  ASSERT_TRUE(server.ok());
  auto second = start(name);
  EXPECT_EQ(second.code(), Errc::kExists);
  auto nodes = running_nodes();
  ASSERT_TRUE(nodes.ok());
  EXPECT_NE(std::find(nodes->begin(), nodes->end(), name), nodes->end());
  server.value().reset();
  EXPECT_EQ(call_node(name, "x", json::object()).code(), Errc::kNotFound);
  EXPECT_TRUE(start(name).ok());
}

/// Whoever names a socket writes lines of the table of sockets, and can take no node's place by it.
TEST(Control, a_socket_with_lines_in_its_name_is_no_node) {
  const std::string forged = unique_name("forged");
  const std::string line = "\n0: 00000002 00000000 00010000 0005 01 1 @braid.control.";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = line + forged;
  ASSERT_LT(path.size() + 1, sizeof(address.sun_path));
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(socket.get(), 1), 0);
  ASSERT_TRUE(running_nodes().ok());
  EXPECT_EQ(call_node(forged, "status", json::object()).code(), Errc::kNotFound);
  auto server = start(forged);
  ASSERT_TRUE(server.ok()) << server.error().message();
  auto answer = call_node(forged, "echo", json::object());
  EXPECT_TRUE(answer.ok());
}

TEST(Control, a_nodes_name_has_1_to_93_bytes) {
  EXPECT_TRUE(check_node_name("n").ok());
  EXPECT_TRUE(check_node_name(std::string(93, 'n')).ok());
  EXPECT_EQ(check_node_name("").code(), Errc::kInvalid);
  EXPECT_EQ(check_node_name(std::string(94, 'n')).code(), Errc::kInvalid);
  EXPECT_EQ(start(std::string(94, 'n')).code(), Errc::kInvalid) << "as who takes it is told";
}

TEST(Control, what_is_no_name_of_a_node_is_left_out) {
  const std::string begin = "0000000000000000: 00000002 00000000 ";
  std::istringstream sockets("Num RefCount Protocol Flags Type St Inode Path\n" + begin +
                             "00010000 0005 01 11 @braid.control.b\n" + begin +
                             "00000000 0005 03 12 @braid.control.connected\n" + begin +
                             "00010000 0005 01 13 @braid.control.\n" + begin +
                             "00010000 0005 01 14 @braid.control." + std::string(200, 'x') + "\n" +
                             begin + "00010000 0005 01 15 @another.a\n" + begin +
                             "00010000 0005 01 16 @braid.control.a\n");
  EXPECT_EQ(nodes_among(sockets), (std::vector<std::string>{"a", "b"}));
}

TEST(Control, many_callers_at_once_each_get_their_own_answer) {
  const std::string name = unique_name("many");
  auto server = start(name);
  ASSERT_TRUE(server.ok());
  std::vector<std::thread> callers;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      auto answer = call_node(name, "echo", {{"i", i}});
      if (answer.ok() && (*answer)["params"]["i"] == i) ++right;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(right, 8);
}

TEST(Control, an_answer_larger_than_a_socket_buffer_and_a_call_arrives_whole) {
  const std::string name = unique_name("large");
  auto server = start(name, [](const CallPtr& call) {
    call->answer(json{{"text", std::string(2 * kRpcLineMax, 'x')}});
  });
  ASSERT_TRUE(server.ok());
  auto answer = call_node(name, "x", json::object());
  ASSERT_TRUE(answer.ok()) << answer.error().message();
  EXPECT_EQ((*answer)["text"].get<std::string>().size(), 2 * kRpcLineMax);
}

TEST(Control, an_answer_that_is_too_long_is_said_to_be) {
  const std::string name = unique_name("too_long");
  auto server = start(name, [](const CallPtr& call) {
    call->answer(json{{"text", std::string(kRpcAnswerMax, 'x')}});
  });
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(call_node(name, "x", json::object()).code(), Errc::kOutOfRange);
}

TEST(Control, nobody_can_call_before_the_node_is_ready) {
  const std::string name = unique_name("claimed");
  auto server = ControlServer::claim(name);
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(ControlServer::claim(name).code(), Errc::kExists);
  EXPECT_EQ(call_node(name, "x", json::object()).code(), Errc::kNotFound);
  auto nodes = running_nodes();
  ASSERT_TRUE(nodes.ok());
  EXPECT_EQ(std::find(nodes->begin(), nodes->end(), name), nodes->end());
  ASSERT_TRUE((*server)->serve(echo).ok());
  EXPECT_TRUE(call_node(name, "x", json::object()).ok());
}

TEST(Control, half_a_line_and_wrong_calls_are_refused_and_the_connection_goes_on) {
  const std::string name = unique_name("malformed");
  auto server = start(name);
  ASSERT_TRUE(server.ok());
  RawCaller caller(name);
  caller.send("{\"jsonrpc\":\"2.0\",\"id\":1,\"met");
  caller.send("hod\":5}\n[1]\n");
  EXPECT_EQ(caller.answer().code(), Errc::kProtocol);
  EXPECT_EQ(caller.answer().code(), Errc::kProtocol);
  caller.call("x");
  EXPECT_TRUE(caller.answer().ok());
}

TEST(Control, calls_of_one_connection_are_answered_in_turn) {
  const std::string name = unique_name("pipelined");
  Kept kept;
  auto server = start(name, kept.handler());
  ASSERT_TRUE(server.ok());
  RawCaller caller(name);
  caller.call("first");
  caller.call("second");
  kept.wait_for(1);
  kept.calls[0]->answer(json("one"));
  EXPECT_EQ(*caller.answer(), "one");
  kept.wait_for(2);
  EXPECT_EQ(kept.calls[1]->rpc().method, "second");
  kept.calls[1]->answer(json("two"));
  EXPECT_EQ(*caller.answer(), "two");
}

// A caller that ends in the middle of it may not have said all that it wanted.
TEST(Control, a_call_without_its_newline_is_not_carried_out) {
  const std::string name = unique_name("unended");
  std::atomic<int> calls{0};
  auto server = start(name, [&](const CallPtr& call) {
    ++calls;
    call->answer(json("done"));
  });
  ASSERT_TRUE(server.ok());
  RawCaller caller(name);
  caller.call("first");
  caller.send(*encode_call(1, "second", json::object()));
  caller.stop_sending();
  EXPECT_EQ(*caller.answer(), "done");
  EXPECT_EQ(caller.line(), "") << "the node hangs up";
  EXPECT_EQ(calls, 1);
}

TEST(Control, a_node_sees_that_a_caller_has_gone) {
  const std::string name = unique_name("gone");
  Kept kept;
  auto server = start(name, kept.handler());
  ASSERT_TRUE(server.ok());
  RawCaller caller(name);
  caller.call("x");
  kept.wait_for(1);
  EXPECT_FALSE(kept.calls[0]->caller_gone());
  caller.stop_sending();
  EXPECT_FALSE(kept.calls[0]->caller_gone()) << "it still waits for the answer";
  caller.hang_up();
  EXPECT_TRUE(kept.calls[0]->caller_gone());
  kept.calls[0]->answer(json("late"));
  EXPECT_TRUE(ControlServer::claim(unique_name("other")).ok());
}

TEST(Control, a_call_dropped_by_the_node_is_answered) {
  const std::string name = unique_name("dropped");
  auto server = start(name, [](const CallPtr&) {});
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(call_node(name, "x", json::object()).code(), Errc::kCanceled);
}

TEST(Control, callers_that_do_not_read_neither_stop_others_nor_the_end) {
  const std::string name = unique_name("deaf");
  auto server = start(name, [](const CallPtr& call) {
    call->answer(json{{"text", std::string(3 << 20, 'x')}});
  });
  ASSERT_TRUE(server.ok());
  RawCaller deaf(name);
  deaf.call("x");
  auto answer = call_node(name, "x", json::object());
  EXPECT_TRUE(answer.ok()) << answer.error().message();
  server.value().reset();
  EXPECT_EQ(call_node(name, "x", json::object()).code(), Errc::kNotFound);
}

TEST(Control, idle_connections_give_way_and_busy_ones_do_not) {
  const std::string name = unique_name("crowded");
  Kept kept;
  auto server = start(name, kept.handler());
  ASSERT_TRUE(server.ok());
  std::list<RawCaller> callers;
  callers.emplace_back(name);
  RawCaller& idle = callers.back();
  for (size_t i = 1; i < kControlConnectionsMax; ++i) callers.emplace_back(name).call("hold");
  kept.wait_for(kControlConnectionsMax - 1);
  RawCaller one_more(name);
  one_more.call("hold");
  kept.wait_for(kControlConnectionsMax);
  EXPECT_EQ(idle.line(), "") << "the idle connection is closed for it";
  auto refused = call_node(name, "x", json::object());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), Errc::kBusy) << refused.error().message();
  kept.calls.clear();
  EXPECT_EQ(one_more.answer().code(), Errc::kCanceled);
}

TEST(Control, a_node_out_of_descriptors_answers_later) {
  const std::string name = unique_name("descriptors");
  auto server = start(name);
  ASSERT_TRUE(server.ok());
  RawCaller caller;  // its own descriptor is there already
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  caller.connect(name);
  caller.call("x");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(caller.answer().ok());
}

TEST(Control, text_that_is_not_utf8_is_refused_before_it_is_sent) {
  EXPECT_EQ(call_node(unique_name("none"), "map", {{"target", "h/\xff"}}).code(), Errc::kInvalid);
}

}  // namespace
}  // namespace braid::cli
