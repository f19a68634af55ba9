// Sessions with several paths, at a node: a server that listens at several addresses of this host,
// and another one that some of the paths should not lead to.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/test_node.h"

namespace braid::cli {
namespace {

using base::Errc;
using base::Result;
using nlohmann::json;

class NodePaths : public testing::Test {
 protected:
  void SetUp() override {
    server_ = serve({{"127.0.0.1", 0}, {"127.0.0.2", 0}, {"127.0.0.3", 0}});
    ASSERT_NE(server_, nullptr);
    at_ = endpoints(*server_);
    ASSERT_EQ(at_.size(), 3u);
    NodeOptions daemon;
    daemon.role = "daemon";
    daemon.attach = attach_nothing;
    daemon.stranger_after_ns = 10'000'000;
    daemon_ = start_node(std::move(daemon));
    ASSERT_NE(daemon_, nullptr);
  }
  static std::unique_ptr<Node> serve(const std::vector<vhca::Address>& listen) {
    NodeOptions server;
    server.role = "server";
    server.serve.emplace();
    server.serve->listen = listen.front();
    server.serve->listen_further.assign(listen.begin() + 1, listen.end());
    server.serve->memory = {{"ram", 8 << 20}, {"more", 8 << 20}};
    return start_node(std::move(server));
  }
  static std::vector<std::string> endpoints(Node& server) {
    const json status = *server.call("status", json::object());
    return status["server"]["endpoints"];
  }
  Result<json> map(const std::string& paths, const std::string& name = "ram") {
    return daemon_->call("map", {{"target", paths + "/" + name}});
  }
  Result<json> path(const std::string& action, const std::string& which,
                    const std::string& session = "ram", bool force = false) {
    return daemon_->call(
        "path", {{"action", action}, {"session", session}, {"path", which}, {"force", force}});
  }
  json session() { return (*daemon_->call("status", json::object()))["sessions"].at(0); }
  std::string state() {
    return (*daemon_->call("status", json::object()))["devices"].at(0)["state"];
  }
  size_t sessions() { return (*daemon_->call("status", json::object()))["sessions"].size(); }
  static size_t clients_of(Node& server) {
    return (*server.call("status", json::object()))["server"]["session_list"].size();
  }
  size_t connected() {
    size_t up = 0;
    const json now = session();
    for (const json& one : now["paths"]) up += one["connected"] == true ? 1 : 0;
    return up;
  }

  std::unique_ptr<Node> server_;
  std::unique_ptr<Node> daemon_;
  std::vector<std::string> at_;
};

TEST_F(NodePaths, of_a_target_are_all_used_and_shown) {
  auto mapped = map(at_[0] + "," + at_[1]);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  EXPECT_EQ((*mapped)["target"], at_[0] + "," + at_[1] + "/ram");
  const json paths = (*mapped)["session"]["paths"];
  ASSERT_EQ(paths.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(paths[i]["id"], i);
    EXPECT_EQ(paths[i]["path"], at_[i]);
    EXPECT_EQ(paths[i]["state"], "connected");
    EXPECT_EQ(paths[i]["device"], "software HCA, shared memory inside this host");
    for (const char* count :
         {"reads", "writes", "in_flight", "errors", "reconnects", "failed_over"})
      EXPECT_TRUE(paths[i][count].is_number_unsigned()) << count;
    EXPECT_EQ(paths[i]["connections"].size(), 2u);
  }
  const json at_server = *server_->call("status", json::object());
  EXPECT_EQ(at_server["server"]["session_list"][0]["paths"].size(), 2u);
}

TEST_F(NodePaths, come_and_go_while_their_devices_stay) {
  ASSERT_TRUE(map(at_[0]).ok());
  auto added = path("add", at_[1]);
  ASSERT_TRUE(added.ok()) << added.error().message();
  EXPECT_EQ(connected(), 2u);
  ASSERT_TRUE(path("disconnect", at_[1]).ok());
  ASSERT_TRUE(until([&] { return connected() == 1; }));
  EXPECT_EQ(session()["paths"][1]["state"], "disconnected by its operator");
  const json device = (*daemon_->call("status", json::object()))["devices"][0];
  EXPECT_NE(device["why"].dump().find("by 1 of 2 paths"), std::string::npos) << device["why"];
  ASSERT_TRUE(path("reconnect", "1").ok());
  ASSERT_TRUE(until([&] { return connected() == 2; }));
  // The session keeps its name when its first path goes.
  auto removed = path("remove", "0");
  ASSERT_TRUE(removed.ok()) << removed.error().message();
  EXPECT_EQ((*removed)["paths"].size(), 1u);
  EXPECT_TRUE(path("add", at_[2], at_[0]).ok());
  EXPECT_EQ(connected(), 2u);
}

TEST_F(NodePaths, by_gid_are_those_of_the_ports_addresses) {
  const auto gid_of = [](const std::string& at) {
    return "gid:[::ffff:" + at.substr(0, at.rfind(':')) + "]" + at.substr(at.rfind(':'));
  };
  auto mapped = map(gid_of(at_[0]) + "," + at_[1]);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  EXPECT_EQ((*mapped)["session"]["paths"][0]["path"], at_[0]);
  auto added = path("add", gid_of(at_[2]));
  ASSERT_TRUE(added.ok()) << added.error().message();
  EXPECT_EQ(connected(), 3u);
  expect_refused(path("add", at_[2]), Errc::kExists, "already, as path 2");
}

TEST_F(NodePaths, that_cannot_be_changed_so_are_named) {
  ASSERT_TRUE(map(at_[0]).ok());
  expect_refused(path("remove", "7"), Errc::kNotFound, "has no path \"7\"; it has 0 (" + at_[0]);
  expect_refused(path("disconnect", "127.0.0.9"), Errc::kNotFound, "no path \"127.0.0.9\"");
  expect_refused(path("remove", "0"), Errc::kInvalid, "path 0 is the last one");
  expect_refused(path("disconnect", "0"), Errc::kBusy, "--force");
  expect_refused(path("add", at_[0]), Errc::kExists, "already, as path 0");
  expect_refused(path("add", "127.0.0.9:1"), Errc::kDisconnected, "it was not added");
  expect_refused(path("add", "gid:fe80::1"), Errc::kInvalid, "link-local");
  expect_refused(path("add", "127.0.0.1@127.0.0.2"), Errc::kInvalid, "leave out \"127.0.0.1@\"");
  expect_refused(path("add", "203.0.113.1@203.0.113.2"), Errc::kNotFound, "203.0.113.1");
  expect_refused(path("add", at_[1], "nothing"), Errc::kNotFound, "no session \"nothing\"");
  expect_refused(path("turn", "0"), Errc::kNotSupported, "unknown action \"turn\"");
  expect_refused(path("policy", "best"), Errc::kInvalid, "want round-robin");
  EXPECT_EQ(session()["paths"].size(), 1u) << "what was refused leaves nothing";
  ASSERT_TRUE(path("policy", "min-latency").ok());
  EXPECT_EQ(session()["path_policy"], "min-latency");
  // By force also the last one; and the I/O that then waits can go on again.
  ASSERT_TRUE(path("disconnect", "0", "ram", true).ok());
  ASSERT_TRUE(until([&] { return connected() == 0; }));
  ASSERT_TRUE(path("reconnect", "0").ok());
  ASSERT_TRUE(until([&] { return connected() == 1; }));
}

TEST_F(NodePaths, that_are_being_made_are_waited_for_by_who_maps_again) {
  ASSERT_TRUE(map(at_[0]).ok());
  ASSERT_TRUE(server_->call("close", {{"export", "ram"}}).ok());
  ASSERT_TRUE(until([&] { return state() == "revoked"; }));
  ASSERT_TRUE(path("disconnect", "0", "ram", true).ok());
  ASSERT_TRUE(until([&] { return connected() == 0; }));
  auto remapped = std::async(std::launch::async, [&] {
    return daemon_->call("remap", {{"name", "ram"}});
  });
  ASSERT_TRUE(until([&] { return state() == "path-down"; })) << "it was asked for";
  ASSERT_TRUE(path("reconnect", "0").ok());
  auto open = remapped.get();
  ASSERT_TRUE(open.ok()) << open.error().message();
  EXPECT_EQ((*open)["state"], "open");
}

TEST_F(NodePaths, that_stay_down_are_named_to_who_maps_again) {
  NodeOptions options;
  options.role = "daemon";
  options.attach = attach_nothing;
  options.path_patience_ns = 1'000'000;
  daemon_ = start_node(std::move(options));
  ASSERT_NE(daemon_, nullptr);
  ASSERT_TRUE(map(at_[0]).ok());
  ASSERT_TRUE(path("disconnect", "0", "ram", true).ok());
  ASSERT_TRUE(until([&] { return state() == "path-down"; }));
  expect_refused(daemon_->call("remap", {{"name", "ram"}}), Errc::kDisconnected,
                 "waits for its path");
}

TEST_F(NodePaths, to_another_server_are_refused) {
  const auto other = serve({{"127.0.0.1", 0}});
  ASSERT_NE(other, nullptr);
  const std::string there = endpoints(*other).front();
  expect_refused(map(at_[0] + "," + there), Errc::kStale, "another server listens there");
  EXPECT_EQ(sessions(), 0u) << "a mapping that is refused leaves no session";
  ASSERT_TRUE(map(at_[0]).ok());
  expect_refused(path("add", there), Errc::kStale, "another server listens there");
  expect_refused(map(at_[1] + "," + at_[0] + "," + there, "more"), Errc::kStale,
                 "another server listens there");
  EXPECT_EQ(session()["devices"], json::array({"ram"}));
}

TEST_F(NodePaths, that_are_down_at_first_come_up_later) {
  const auto later = serve({{"127.0.0.4", 0}});  // for a port that nobody else takes meanwhile
  ASSERT_NE(later, nullptr);
  const std::string there = endpoints(*later).front();
  ASSERT_TRUE(stop(*later, true).ok());
  auto mapped = map(there + "," + at_[0]);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  EXPECT_NE((*mapped)["why"].dump().find("by 1 of 2 paths"), std::string::npos);
  // Now another server listens there: the session must not move to it.
  const size_t colon = there.rfind(':');
  const auto stranger =
      serve({{"127.0.0.4", static_cast<uint16_t>(std::stoi(there.substr(colon + 1)))}});
  ASSERT_NE(stranger, nullptr);
  ASSERT_TRUE(until(
      [&] { return session()["paths"][0]["state"] == "taken down: another server is there"; }));
  EXPECT_EQ(connected(), 1u);
  // Nor do names lead to this server's disks: who asks the other one gets the other one's.
  expect_refused(map(at_[0] + "," + there, "more"), Errc::kStale, "another server listens there");
  ASSERT_TRUE(map(there, "more").ok());
  EXPECT_EQ(sessions(), 2u);
  EXPECT_EQ(clients_of(*stranger), 1u);
  EXPECT_EQ(clients_of(*server_), 1u);
}

TEST_F(NodePaths, that_are_down_are_not_taken_for_the_server) {
  const auto later = serve({{"127.0.0.4", 0}});
  ASSERT_NE(later, nullptr);
  const std::string there = endpoints(*later).front();
  ASSERT_TRUE(stop(*later, true).ok());
  ASSERT_TRUE(map(there + "," + at_[0]).ok());
  expect_refused(map(there, "more"), Errc::kDisconnected, "no answer at " + there);
  ASSERT_TRUE(map(there + "," + at_[0], "more").ok()) << "another path tells which server it is";
  EXPECT_EQ(sessions(), 1u);
}

TEST_F(NodePaths, of_a_refused_mapping_do_not_stay_with_who_joined_it) {
  const auto other = serve({{"127.0.0.1", 0}});
  ASSERT_NE(other, nullptr);
  const std::string there = endpoints(*other).front();
  std::thread refused([&] {
    expect_refused(map(at_[0] + "," + there), Errc::kStale, "another server listens there");
  });
  auto joins = map(at_[0], "more");
  refused.join();
  ASSERT_TRUE(joins.ok()) << joins.error().message();
  EXPECT_EQ(session()["paths"].size(), 1u) << session()["paths"];
}

TEST_F(NodePaths, of_several_targets_are_shared) {
  ASSERT_TRUE(map(at_[0]).ok());
  ASSERT_TRUE(map(at_[1] + "," + at_[0], "more").ok());
  EXPECT_EQ(sessions(), 1u);
  EXPECT_EQ(session()["devices"], json::array({"ram", "more"}));
  EXPECT_EQ(connected(), 2u);
}

TEST_F(NodePaths, are_told_for_one_device_without_what_is_told_of_the_others) {
  ASSERT_TRUE(map(at_[0]).ok());
  ASSERT_TRUE(map(at_[0], "more").ok());
  const json all = *daemon_->call("status", json::object());
  ASSERT_EQ(all["devices"].size(), 2u);
  // What is told of a thousand devices is not of the size of a million.
  EXPECT_FALSE(all["devices"][0]["session"].contains("devices"));

  const std::string target = all["devices"][1]["target"];
  for (const std::string& only : {std::string("more"), target}) {
    const json one = *daemon_->call("status", {{"only", only}});
    ASSERT_EQ(one["devices"].size(), 1u) << only;
    EXPECT_EQ(one["devices"][0]["name"], "more");
    EXPECT_EQ(one["sessions"].size(), 1u);
  }
  EXPECT_EQ((*daemon_->call("status", {{"only", "none"}}))["devices"].size(), 0u);
  EXPECT_EQ(daemon_->call("status", {{"only", 7}}).code(), Errc::kInvalid);
  EXPECT_EQ(*daemon_->call("alive", json::object()), json::object());
}

TEST_F(NodePaths, of_a_name_with_several_addresses_are_asked_for) {
  NodeOptions options;
  options.role = "daemon";
  options.attach = attach_nothing;
  options.look_up = [](const std::string&) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{"127.0.0.1", "127.0.0.2"};
  };
  const auto node = start_node(std::move(options));
  ASSERT_NE(node, nullptr);
  expect_refused(node->call("map", {{"target", "server," + at_[0] + "/ram"}}), Errc::kInvalid,
                 "host \"server\" has 2 addresses");
}

}  // namespace
}  // namespace braid::cli
