// Keys at nodes: who maps with which, what those are told who may not, what is shared, and what a
// server that reads its file again does to the sessions that stand.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <future>
#include <nlohmann/json.hpp>

#include "cli/test_node.h"

namespace braid::cli {
namespace {

using base::Errc;
using base::Result;
using nlohmann::json;

constexpr const char* kVm7 = "vm7:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
constexpr const char* kVm8 = "vm8:IAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
constexpr const char* kOther = "vm7:QAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
constexpr const char* kStranger = "vm9:IAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";

class NodeKeys : public testing::Test {
 protected:
  void SetUp() override {
    write("keys", std::string(kVm7) + kVm8);
    server_ = serve(folder_ / "keys");
    daemon_ = daemon("");
    ASSERT_NE(server_, nullptr);
    ASSERT_NE(daemon_, nullptr);
    at_ = (*server_->call("status", json::object()))["server"]["endpoints"];
  }
  std::string write(const std::string& name, const std::string& text) {
    return write_file(folder_, name, text);
  }
  static std::unique_ptr<Node> serve(const std::string& keys) {
    NodeOptions server;
    server.role = "server";
    server.serve.emplace();
    server.serve->listen = {"127.0.0.1", 0};
    server.serve->listen_further = {{"127.0.0.2", 0}};
    server.serve->memory = {{"ram", 8 << 20}, {"more", 8 << 20}};
    server.serve->keys_file = keys;
    return start_node(std::move(server));
  }
  static std::unique_ptr<Node> daemon(const std::string& key_file) {
    NodeOptions options;
    options.role = "daemon";
    options.attach = attach_nothing;
    options.key_file = key_file;
    return start_node(std::move(options));
  }
  Result<json> map(const std::string& target, const std::string& key, Node* at = nullptr) {
    json params{{"target", target}};
    if (!key.empty()) params["key"] = key;
    return (at != nullptr ? at : daemon_.get())->call("map", params);
  }
  json server_now() { return (*server_->call("status", json::object()))["server"]; }
  json sessions() { return (*daemon_->call("status", json::object()))["sessions"]; }

  const base::ScratchFolder folder_;
  std::unique_ptr<Node> server_;
  std::unique_ptr<Node> daemon_;
  std::vector<std::string> at_;
};

TEST_F(NodeKeys, LetInWhoProvesOneAndAreShownAtBothEnds) {
  auto mapped = map(at_[0] + "/ram", write("vm7", kVm7));
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  EXPECT_EQ((*mapped)["session"]["key"], "vm7");
  const json server = server_now();
  EXPECT_EQ(server["session_list"][0]["key"], "vm7");
  EXPECT_EQ(server["keys_file"], folder_ / "keys");
}

TEST_F(NodeKeys, KeepOutWhoHasNoneAndSayWhy) {
  const std::string target = at_[0] + "/ram";
  expect_refused(map(target, ""), Errc::kRefused, "lets in only clients with a key");
  expect_refused(map(target, write("other", kOther)), Errc::kPermission,
                 "the server refused our key \"vm7\"");
  expect_refused(map(target, write("stranger", kStranger)), Errc::kPermission,
                 "the server refused our key \"vm9\"");
  EXPECT_EQ(sessions().size(), 0u);
  const json refused = server_now()["keys_refused"];
  EXPECT_EQ(refused.value("no key shown", 0), 1) << refused;
  EXPECT_EQ(refused.value("wrong key", 0), 1) << refused;
  EXPECT_EQ(refused.value("key not known", 0), 1) << refused;
}

TEST_F(NodeKeys, AreReadFromAFileThatIsNamedWhole) {
  const std::string target = at_[0] + "/ram";
  expect_refused(map(target, "vm7"), Errc::kInvalid, "want its absolute path");
  expect_refused(map(target, folder_ / "nothing"), Errc::kNotFound, folder_ / "nothing");
  expect_refused(map(target, folder_ / "keys"), Errc::kInvalid, "has 2 keys");
  const std::string open = write("open", kVm7);
  ASSERT_EQ(::chmod(open.c_str(), 0644), 0);
  expect_refused(map(target, open), Errc::kPermission, "mode 0600 is right");
}

TEST_F(NodeKeys, OfANodeAreThoseOfMapsThatNameNone) {
  auto other = daemon(write("vm8", kVm8));
  ASSERT_NE(other, nullptr);
  auto mapped = map(at_[0] + "/ram", "", other.get());
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  EXPECT_EQ((*mapped)["session"]["key"], "vm8");
  auto own = map(at_[0] + "/more", write("vm7", kVm7), other.get());
  ASSERT_TRUE(own.ok()) << own.error().message();
  EXPECT_EQ((*own)["session"]["key"], "vm7");
  EXPECT_TRUE(stop(*other, /*force=*/true).ok());
}

TEST_F(NodeKeys, TellSessionsToOneServerApart) {
  const std::string vm7 = write("vm7", kVm7), vm8 = write("vm8", kVm8);
  ASSERT_TRUE(map(at_[0] + "/ram", vm7).ok());
  ASSERT_TRUE(map(at_[0] + "/more", write("copy", kVm7)).ok());
  EXPECT_EQ(sessions().size(), 1u) << "the same key in another file is the same key";
  json params{{"target", at_[0] + "/ram"}, {"name", "looks"}, {"access", "ro"}, {"key", vm8}};
  auto mapped = daemon_->call("map", params);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  EXPECT_EQ((*mapped)["session"]["key"], "vm8");
  EXPECT_EQ(sessions().size(), 2u);
  params = {{"action", "policy"}, {"session", at_[0]}, {"path", "round-robin"}};
  expect_refused(daemon_->call("path", params), Errc::kInvalid, "by different keys: name a device");
  params["session"] = "looks";
  auto done = daemon_->call("path", params);
  ASSERT_TRUE(done.ok()) << done.error().message();
  EXPECT_EQ((*done)["key"], "vm8");
  params = {{"target", at_[0] + "/more"}, {"name", "third"}, {"key", write("other", kOther)}};
  expect_refused(daemon_->call("map", params), Errc::kPermission, "refused our key \"vm7\"");
}

TEST_F(NodeKeys, AreProvedByPathsThatAreAdded) {
  ASSERT_TRUE(map(at_[0] + "/ram", write("vm7", kVm7)).ok());
  auto added = daemon_->call("path", {{"action", "add"}, {"session", "ram"}, {"path", at_[1]}});
  ASSERT_TRUE(added.ok()) << added.error().message();
  EXPECT_EQ((*added)["paths"].size(), 2u);
  EXPECT_EQ((*added)["paths"][1]["state"], "connected");
  auto both = map(at_[0] + "," + at_[1] + "/more", folder_ / "vm7");
  ASSERT_TRUE(both.ok()) << both.error().message();
  EXPECT_EQ(server_now()["session_list"].size(), 1u);
}

TEST_F(NodeKeys, ThatAreReadAgainEndTheSessionsOfThoseThatAreGone) {
  ASSERT_TRUE(map(at_[0] + "/ram", write("vm7", kVm7)).ok());
  ASSERT_TRUE(map(at_[0] + "/more", write("vm8", kVm8)).ok());
  const auto state = [&](const std::string& key) {
    const json all = sessions();
    for (const json& session : all)
      if (session["key"] == key) return session["state"].get<std::string>();
    return std::string("no session");
  };
  write("keys", kVm8);
  auto done = server_->call("reload_keys", json::object());
  ASSERT_TRUE(done.ok()) << done.error().message();
  EXPECT_EQ((*done)["sessions_ended"], 1);
  EXPECT_EQ((*done)["keys"], json::array({"vm8"}));
  const auto why = [&] {
    const json status = *daemon_->call("status", json::object());
    for (const json& device : status["devices"])
      if (device["name"] == "ram") return device["why"].dump();
    return std::string();
  };
  EXPECT_TRUE(until([&] { return why().find("refused our key") != std::string::npos; })) << why();
  EXPECT_EQ(state("vm8"), "connected") << "its key is where it was";

  // What cannot be read changes nothing.
  write("keys", "vm7:not a key");
  expect_refused(server_->call("reload_keys", json::object()), Errc::kInvalid, "line 1");
  EXPECT_EQ(state("vm8"), "connected");

  write("keys", std::string(kVm8) + kVm7);
  ASSERT_TRUE(server_->call("reload_keys", json::object()).ok());
  EXPECT_TRUE(until([&] { return state("vm7") == "connected"; })) << why();
}

TEST_F(NodeKeys, OnAFileSystemThatHangsKeepAFewWorkersAndNoMore) {
  std::promise<void> answer;
  std::atomic<unsigned> reading{0}, most{0};
  NodeOptions options;
  options.role = "daemon";
  options.attach = attach_nothing;
  options.file_patience_ns = 250'000'000;  // for a worker on a loaded machine
  options.read_key = [&, answered = answer.get_future().share()](const std::string& path) {
    const unsigned now = ++reading;
    if (now > most) most = now;
    answered.wait();
    --reading;
    return read_key(path);
  };
  const auto node = start_node(std::move(options));
  ASSERT_NE(node, nullptr);
  const std::string vm7 = write("vm7", kVm7);
  for (int i = 0; i < 4; ++i)
    expect_refused(map(at_[0] + "/ram", vm7, node.get()), Errc::kTimedOut, "not read after");
  for (int i = 0; i < 3; ++i)
    expect_refused(map(at_[0] + "/ram", vm7, node.get()), Errc::kBusy,
                   "4 other readings of key files");
  EXPECT_EQ(most, 4u);
  answer.set_value();
  ASSERT_TRUE(until([&] { return map(at_[0] + "/ram", vm7, node.get()).ok(); }))
      << "the workers come back, and with them the turn of others";
  EXPECT_TRUE(stop(*node, /*force=*/true).ok());
}

TEST_F(NodeKeys, WhoseReadingHangsAtAServerChangeNothing) {
  std::promise<void> answer;
  auto hangs = std::make_shared<std::atomic<bool>>(false);
  NodeOptions options;
  options.role = "server";
  options.serve.emplace();
  options.serve->listen = {"127.0.0.1", 0};
  options.serve->memory = {{"ram", 8 << 20}};
  options.serve->keys_file = folder_ / "keys";
  options.file_patience_ns = 250'000'000;  // for a worker on a loaded machine
  options.read_keys = [hangs, answered = answer.get_future().share()](const std::string& path) {
    if (*hangs) answered.wait();
    return read_keys(path);
  };
  const auto node = start_node(std::move(options));
  ASSERT_NE(node, nullptr);
  *hangs = true;
  for (int i = 0; i < 4; ++i)
    expect_refused(node->call("reload_keys", json::object()), Errc::kTimedOut, "not read after");
  expect_refused(node->call("reload_keys", json::object()), Errc::kBusy, "4 other readings");
  answer.set_value();
  EXPECT_TRUE(until([&] { return node->call("reload_keys", json::object()).ok(); }));
  EXPECT_TRUE(stop(*node, /*force=*/true).ok());
}

TEST_F(NodeKeys, ServerWithoutThemHasNoneToReadAgainAndIsNotBelieved) {
  auto open = serve("");
  ASSERT_NE(open, nullptr);
  expect_refused(open->call("reload_keys", json::object()), Errc::kInvalid, "without --keys");
  expect_refused(daemon_->call("reload_keys", json::object()), Errc::kInvalid, "serves nothing");
  const std::string at = (*open->call("status", json::object()))["server"]["listen"];
  expect_refused(map(at + "/ram", write("vm7", kVm7)), Errc::kPermission,
                 "asks for no key, though we have key \"vm7\"");
}

}  // namespace
}  // namespace braid::cli
