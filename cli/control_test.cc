// A node answers calls on its control socket, and nothing is left of it when it ends.
#include "cli/control.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

namespace braid::cli {
namespace {

using base::Errc;
using nlohmann::json;

std::string unique_name(const char* what) {
  return "test." + std::to_string(getpid()) + "." + what;
}

base::Result<json> echo(const RpcCall& call) {
  if (call.method == "fail") return base::Error(Errc::kBusy, "held by vm1");
  return json{{"method", call.method}, {"params", json::parse(call.params)}};
}

TEST(Control, a_call_is_answered_with_its_result_or_its_error) {
  const std::string name = unique_name("answers");
  auto server = ControlServer::start(name, echo);
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
  auto server = ControlServer::start(name, echo);
  ASSERT_TRUE(server.ok());
  auto second = ControlServer::start(name, echo);
  EXPECT_EQ(second.code(), Errc::kExists);
  auto nodes = running_nodes();
  ASSERT_TRUE(nodes.ok());
  EXPECT_NE(std::find(nodes->begin(), nodes->end(), name), nodes->end());
  server.value().reset();
  EXPECT_EQ(call_node(name, "x", json::object()).code(), Errc::kNotFound);
  EXPECT_TRUE(ControlServer::start(name, echo).ok());
}

TEST(Control, many_callers_at_once_each_get_their_own_answer) {
  const std::string name = unique_name("many");
  auto server = ControlServer::start(name, echo);
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

TEST(Control, an_answer_larger_than_a_socket_buffer_arrives_whole) {
  const std::string name = unique_name("large");
  auto server = ControlServer::start(name, [](const RpcCall&) -> base::Result<json> {
    return json{{"text", std::string(2 << 20, 'x')}};
  });
  ASSERT_TRUE(server.ok());
  auto answer = call_node(name, "x", json::object());
  ASSERT_TRUE(answer.ok()) << answer.error().message();
  EXPECT_EQ((*answer)["text"].get<std::string>().size(), size_t{2} << 20);
}

}  // namespace
}  // namespace braid::cli
