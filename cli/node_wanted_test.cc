// Devices that a node maps by itself: servers that come late, devices that are given up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/control.h"
#include "cli/metrics/metrics_text.h"
#include "cli/test_node.h"

namespace braid::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

NodeOptions server_on(uint16_t port) {
  NodeOptions options;
  options.role = "server";
  options.serve.emplace();
  options.serve->listen = {"127.0.0.1", port};
  options.serve->memory = {{"ram", 8 << 20}};
  return options;
}

std::string address_of(Node& server) {
  return server.call("status", json::object())->at("server").at("listen").get<std::string>();
}

NodeOptions daemon_that_wants(const std::vector<std::pair<std::string, std::string>>& wanted) {
  NodeOptions options;
  options.role = "daemon";
  options.attach = attach_nothing;
  options.wanted_retry_ns = 10 * base::kMillisecond;
  for (const auto& [name, target] : wanted)
    options.maps.push_back(
        {name, target, json{{"target", target}, {"name", name}}.dump(), "braid.toml:1:1"});
  return options;
}

json device(Node& node, const std::string& name) {
  const json status = *node.call("status", json::object());
  EXPECT_TRUE(check_status(status).ok());
  for (const json& one : status.at("devices"))
    if (one.at("name") == name) return one;
  return nullptr;
}

bool in_state(Node& node, const std::string& name, const std::string& state) {
  return until([&] {
    const json found = device(node, name);
    return found.is_object() && found.at("state") == state;
  });
}

TEST(NodeWanted, IsMappedWhenItsServerComesAndOthersMeanwhile) {
  auto there = start_node(server_on(0));
  auto late = start_node(server_on(0));
  const std::string first = address_of(*there), second = address_of(*late);
  ASSERT_TRUE(stop(*late, false).ok());
  late.reset();

  const auto daemon =
      start_node(daemon_that_wants({{"late", second + "/ram"}, {"there", first + "/ram"}}));
  ASSERT_TRUE(in_state(*daemon, "there", "open"));
  json why;  // of that look: it is tried again every 10 ms
  ASSERT_TRUE(until([&] {
    const json found = device(*daemon, "late");
    why = found.at("why");
    return found.at("state") == "waiting" && why.size() == 3;
  }));
  EXPECT_THAT(why[0], HasSubstr("it is to be mapped (braid.toml:1:1), and is tried again every"));
  EXPECT_THAT(why[1], HasSubstr("the last attempt: server " + second));
  EXPECT_THAT(why[2], HasSubstr("braid unmap late gives it up"));

  const auto port = static_cast<uint16_t>(std::stoi(second.substr(second.rfind(':') + 1)));
  late = start_node(server_on(port));
  ASSERT_NE(late, nullptr);
  EXPECT_TRUE(in_state(*daemon, "late", "open"));
  EXPECT_TRUE(stop(*daemon, false).ok());
}

/// Their states by name, each of which is told once.
std::map<std::string, std::string> sampled_states(Node& node) {
  std::map<std::string, std::string> states;
  auto sample = sample_of(*node.call("sample", json::object()));
  EXPECT_TRUE(sample.ok()) << sample.error().message();
  if (!sample.ok()) return states;
  for (const DeviceSample& device : sample->devices)
    EXPECT_TRUE(states.emplace(device.name, device.state).second) << device.name << " is twice";
  const std::string text = metrics_text({&*sample, 1});
  for (const auto& [name, state] : states)
    EXPECT_THAT(text, HasSubstr("device=\"" + name + "\",state=\"" + state + "\"} 1\n"));
  return states;
}

TEST(NodeWanted, IsInEachSampleAttemptOrNot) {
  auto late = start_node(server_on(0));
  const std::string address = address_of(*late);
  ASSERT_TRUE(stop(*late, false).ok());
  late.reset();

  std::vector<std::pair<std::string, std::string>> all;  // of several turns of a sample
  for (int i = 0; i < 9; ++i) all.emplace_back("ram" + std::to_string(i), address + "/ram");
  NodeOptions options = daemon_that_wants(all);
  options.wanted_retry_ns = base::kMillisecond;
  const auto daemon = start_node(std::move(options));
  std::set<std::string> seen;
  EXPECT_TRUE(until([&] {
    const auto states = sampled_states(*daemon);
    EXPECT_EQ(states.size(), all.size()) << "one has no series";
    for (const auto& [name, state] : states) seen.insert(state);
    return HasFailure() || seen.size() > 1;
  }));
  EXPECT_THAT(seen, testing::ElementsAre("mapping", "waiting"));
  ASSERT_TRUE(daemon->call("unmap", {{"name", "ram8"}}).ok());
  EXPECT_TRUE(until([&] { return !sampled_states(*daemon).contains("ram8"); }));

  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  late = start_node(server_on(port));
  ASSERT_NE(late, nullptr);
  EXPECT_TRUE(until([&] {
    const auto states = sampled_states(*daemon);
    EXPECT_EQ(states.size(), all.size() - 1) << "one has no series";
    return HasFailure() || std::any_of(states.begin(), states.end(),
                                       [](auto& one) { return one.second == "open"; });
  }));
  EXPECT_TRUE(stop(*daemon, false).ok());
}

TEST(NodeWanted, IsGivenUpByUnmap) {
  auto server = start_node(server_on(0));
  const std::string gone = address_of(*server);
  ASSERT_TRUE(stop(*server, false).ok());
  const auto daemon = start_node(daemon_that_wants({{"ram", gone + "/ram"}}));
  ASSERT_TRUE(until([&] { return device(*daemon, "ram").is_object(); }));
  const auto unmapped = daemon->call("unmap", {{"name", "ram"}});
  ASSERT_TRUE(unmapped.ok()) << unmapped.error().message();
  EXPECT_TRUE(until([&] { return device(*daemon, "ram").is_null(); }));
  EXPECT_EQ(daemon->call("unmap", {{"name", "ram"}}).code(), base::Errc::kNotFound);
}

TEST(NodeWanted, IsNoMoreWhenTheNodeEnds) {
  auto server = start_node(server_on(0));
  const std::string gone = address_of(*server);
  ASSERT_TRUE(stop(*server, false).ok());
  NodeOptions options = daemon_that_wants({{"a", gone + "/ram"}, {"b", gone + "/other"}});
  options.wanted_retry_ns = 3600 * base::kSecond;  // nobody waits for that
  const auto daemon = start_node(std::move(options));
  ASSERT_TRUE(in_state(*daemon, "a", "waiting"));
  EXPECT_TRUE(stop(*daemon, false).ok());
}

TEST(NodeWanted, TellsWhatIsStillToCome) {
  const auto server = start_node(server_on(0));
  NodeOptions options = daemon_that_wants({{"ram", address_of(*server) + "/ram"}});
  std::mutex mutex;
  std::vector<std::vector<std::string>> told;
  options.still_wanted = [&](const std::vector<std::string>& waiting) {
    const std::lock_guard lock(mutex);
    told.push_back(waiting);
  };
  const auto daemon = start_node(std::move(options));
  EXPECT_TRUE(until([&] {
    const std::lock_guard lock(mutex);
    return told.size() == 2;
  }));
  EXPECT_TRUE(stop(*daemon, false).ok());
  EXPECT_THAT(told[0], testing::ElementsAre("ram"));
  EXPECT_THAT(told[1], testing::ElementsAre());
}

}  // namespace
}  // namespace braid::cli
