// Nodes on the in-host wire: a server and a daemon, both in this process, and real kernel devices
// where this user may have them. The test itself never opens a device: other processes do.
#include "cli/node.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/target.h"
#include "cli/test_node.h"

namespace braid::cli {
namespace {

using base::Errc;
using base::Status;
using nlohmann::json;

/// A process that has a device open until the object ends.
class Holder {
 public:
  explicit Holder(const std::string& device) {
    int to[2] = {};
    int from[2] = {};
    EXPECT_EQ(::pipe2(to, O_CLOEXEC) | ::pipe2(from, O_CLOEXEC), 0);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, from[1], STDOUT_FILENO);
    const std::string script = "exec 3<" + device + " && echo open && read line";
    const char* arguments[] = {"sh", "-c", script.c_str(), nullptr};
    EXPECT_EQ(
        ::posix_spawn(&pid_, "/bin/sh", &files, nullptr, const_cast<char**>(arguments), environ),
        0);
    posix_spawn_file_actions_destroy(&files);
    ::close(to[0]);
    ::close(from[1]);
    end_ = to[1];
    char c = 0;
    EXPECT_EQ(::read(from[0], &c, 1), 1) << device << " could not be opened";
    ::close(from[0]);
  }
  ~Holder() {
    ::close(end_);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  int end_ = -1;
};

class NodeTest : public testing::Test {
 protected:
  void SetUp() override {
    NodeOptions options;
    options.role = "server";
    options.serve.emplace();
    options.serve->listen = {"127.0.0.1", 0};
    options.serve->memory = {{"ram", 8 << 20}, {"other", 4 << 20}};
    server_ = start_node(std::move(options));
    ASSERT_NE(server_, nullptr);
    auto status = server_->call("status", json::object());
    ASSERT_TRUE(status.ok());
    address_ = (*status)["server"]["listen"];
    NodeOptions daemon;
    daemon.role = "daemon";
    daemon.look_up = look_up;
    daemon_ = start_node(std::move(daemon));
    ASSERT_NE(daemon_, nullptr);
  }
  base::Result<json> map(const std::string& exported, json more = json::object()) {
    more["target"] = address_ + "/" + exported;
    return daemon_->call("map", more);
  }
  /// A hosts file: what is true of this machine's is no matter.
  static base::Result<std::vector<std::string>> look_up(const std::string& host) {
    if (host == "both") return std::vector<std::string>{"::1", "127.0.0.1"};
    if (host == "elsewhere") return std::vector<std::string>{"::1", "127.0.0.2"};
    return base::make_error(Errc::kNotFound, "host \"{}\": not in the test's hosts file", host);
  }
  /// The server by the name of its host.
  std::string named(const std::string& host) const {
    return host + address_.substr(address_.rfind(':'));
  }
  base::Result<json> unmap(const std::string& name, bool force = false) {
    return daemon_->call("unmap", {{"name", name}, {"force", force}});
  }
  std::string state() {
    auto status = daemon_->call("status", json::object());
    return (*status)["devices"][0]["state"];
  }
  size_t devices() {
    auto status = daemon_->call("status", json::object());
    return (*status)["devices"].size();
  }

  std::unique_ptr<Node> server_;
  std::string address_;
  std::unique_ptr<Node> daemon_;
};

/// With kernel devices.
class NodeDevices : public NodeTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    NodeTest::SetUp();
    auto mapped = map("ram");
    if (mapped.code() == Errc::kNotSupported || mapped.code() == Errc::kPermission)
      GTEST_SKIP() << mapped.error().message();
    ASSERT_TRUE(mapped.ok()) << mapped.error().message();
    device_ = (*mapped)["device"];
  }
  std::string device_;
};

/// The kernel ends the io_uring of a process that was killed, and with it its sockets, after it.
TEST_F(NodeTest, a_server_waits_for_a_port_that_is_still_taken) {
  NodeOptions options;
  options.role = "server";
  options.serve.emplace();
  options.serve->listen = parse_address(address_).value();
  options.serve->memory = {{"ram", 8 << 20}};
  NodeOptions impatient = options;
  impatient.name = "test." + std::to_string(::getpid()) + ".impatient";
  impatient.port_patience_ns = 0;
  expect_refused(Node::start(std::move(impatient)), Errc::kExists, "somebody listens");
  options.port_taken = [this] { server_.reset(); };
  EXPECT_NE(start_node(std::move(options)), nullptr);
  EXPECT_EQ(server_, nullptr) << "it had the port until the other asked for it";
}

TEST_F(NodeTest, parameters_of_the_wrong_kind_are_refused) {
  for (const json& force : {json("yes"), json(1), json(nullptr), json::array(), json::object()})
    EXPECT_EQ(daemon_->call("unmap", {{"name", "x"}, {"force", force}}).code(), Errc::kInvalid);
  for (const char* key : {"target", "name", "access", "front_end", "give_up_after", "lost_after"}) {
    for (const json& value : {json(5), json(true), json(nullptr), json::array(), json::object()}) {
      json params{{"target", address_ + "/ram"}};
      params[key] = value;
      EXPECT_EQ(daemon_->call("map", params).code(), Errc::kInvalid) << params;
    }
  }
  EXPECT_EQ(daemon_->call("unmap", {{"name", "x"}}).code(), Errc::kNotFound);
  EXPECT_EQ(daemon_->call("nonsense", json::object()).code(), Errc::kNotSupported);
  EXPECT_EQ(devices(), 0U);
}

TEST_F(NodeTest, a_refused_map_leaves_nothing) {
  EXPECT_EQ(map("nothing").code(), Errc::kNotFound);
  EXPECT_EQ(map("ram", {{"name", "with space"}}).code(), Errc::kInvalid);
  EXPECT_EQ(map("ram", {{"name", ".hidden"}}).code(), Errc::kInvalid);
  EXPECT_EQ(map("nothing/.hidden").code(), Errc::kNotFound) << "gets a name that is allowed";
  EXPECT_EQ(devices(), 0U);
  EXPECT_TRUE(stop(*daemon_, false).ok());
}

/// What maps without a kernel: the device stands in it for as long as the mapping does.
class NodeWithoutKernel : public NodeTest {
 protected:
  std::unique_ptr<Node> start_mapper() {
    NodeOptions options;
    options.role = "daemon";
    options.attach = attach_nothing;
    return start_node(std::move(options));
  }
};

TEST_F(NodeWithoutKernel, who_is_refused_is_told_who_has_the_device) {
  const auto first = start_mapper();
  const auto second = start_mapper();
  const json target{{"target", address_ + "/ram"}};
  auto mapped = first->call("map", target);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  const auto refused = second->call("map", target);
  ASSERT_EQ(refused.code(), Errc::kBusy);
  auto status = first->call("status", json::object());
  const std::string holder = (*status)["node"];
  EXPECT_NE(refused.error().message().find("." + holder + " ("), std::string::npos)
      << refused.error().message();
  EXPECT_NE(refused.error().message().find("mode rw, for 0 s)"), std::string::npos)
      << refused.error().message();
  json joining = target;
  joining["access"] = "migration";
  auto joined = second->call("map", joining);
  ASSERT_TRUE(joined.ok()) << joined.error().message();
  EXPECT_EQ((*joined)["access"], "migration");
}

TEST_F(NodeWithoutKernel, what_an_operator_closes_is_shown_and_mapped_again) {
  const auto mapper = start_mapper();
  ASSERT_TRUE(mapper->call("map", {{"target", address_ + "/ram"}}).ok());
  auto before = server_->call("status", json::object());
  const json& sessions = (*before)["server"]["session_list"];
  ASSERT_EQ(sessions.size(), 1U);
  EXPECT_EQ(sessions[0]["devices"][0]["export"], "ram");
  EXPECT_EQ(sessions[0]["devices"][0]["access"], "rw");

  EXPECT_EQ(mapper->call("close", {{"export", "ram"}}).code(), Errc::kInvalid) << "serves nothing";
  EXPECT_EQ(server_->call("close", {{"export", "other"}}).code(), Errc::kNotFound);
  EXPECT_EQ(server_->call("close", json::object()).code(), Errc::kInvalid);
  EXPECT_EQ(mapper->call("remap", {{"name", "ram"}}).code(), Errc::kExists) << "it is open";
  auto closed = server_->call("close", {{"session", sessions[0]["name"]}});
  ASSERT_TRUE(closed.ok()) << closed.error().message();
  EXPECT_EQ((*closed)["closed"], 1);
  EXPECT_EQ((*closed)["sessions"][0]["devices"].size(), 0U);

  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::string state;
  while (state != "revoked" && std::chrono::steady_clock::now() < end) {
    auto status = mapper->call("status", json::object());
    state = (*status)["devices"][0]["state"];
  }
  ASSERT_EQ(state, "revoked");
  auto open = mapper->call("remap", {{"name", "ram"}});
  ASSERT_TRUE(open.ok()) << open.error().message();
  EXPECT_EQ((*open)["state"], "open");
  EXPECT_EQ(mapper->call("remap", {{"name", "nothing"}}).code(), Errc::kNotFound);
}

TEST_F(NodeWithoutKernel, sizes_that_cannot_be_are_refused_in_words) {
  const auto resize = [&](const json& params) { return server_->call("resize", params); };
  EXPECT_EQ(resize({{"export", "ram"}, {"size", "16M"}}).code(), Errc::kNotSupported);
  EXPECT_EQ(resize({{"export", "ram"}, {"size", "much"}}).code(), Errc::kInvalid);
  EXPECT_EQ(resize({{"export", "ram"}, {"size", 5}}).code(), Errc::kInvalid);
  EXPECT_EQ(resize({{"export", "nothing"}, {"size", "16M"}}).code(), Errc::kNotFound);
  EXPECT_EQ(daemon_->call("resize", {{"export", "ram"}, {"size", "16M"}}).code(), Errc::kInvalid);
}

TEST_F(NodeTest, nothing_is_mapped_by_a_node_that_has_stopped) {
  ASSERT_TRUE(stop(*daemon_, false).ok());
  const auto refused = map("ram");
  EXPECT_EQ(refused.code(), Errc::kCanceled);
  EXPECT_TRUE(stop(*daemon_, true).ok()) << "stopping twice does no harm";
}

TEST_F(NodeTest, concurrent_maps_share_a_session_or_its_failure) {
  std::vector<std::future<Errc>> calls;
  for (int i = 0; i < 6; ++i) {
    calls.push_back(std::async(std::launch::async,
                               [this, i] { return map("nothing" + std::to_string(i)).code(); }));
  }
  for (auto& call : calls) EXPECT_EQ(call.get(), Errc::kNotFound);
  EXPECT_EQ(devices(), 0U);
}

TEST_F(NodeTest, each_address_of_a_host_name_is_tried) {
  // The server listens at the second: it is what says that there is no such export.
  const auto reached = daemon_->call("map", {{"target", named("both") + "/nothing"}});
  EXPECT_EQ(reached.code(), Errc::kNotFound);
  EXPECT_NE(reached.error().message().find("there is no export 'nothing'"), std::string::npos)
      << reached.error().message();

  const auto nobody = daemon_->call("map", {{"target", named("elsewhere") + "/ram"}});
  ASSERT_FALSE(nobody.ok());
  for (const std::string& tried : {named("[::1]"), named("127.0.0.2")})
    EXPECT_NE(nobody.error().message().find(tried), std::string::npos) << nobody.error().message();

  const auto unknown = daemon_->call("map", {{"target", named("unheard-of") + "/ram"}});
  EXPECT_EQ(unknown.code(), Errc::kNotFound);
  EXPECT_EQ(devices(), 0U);
}

TEST_F(NodeTest, a_name_server_that_hangs_holds_up_neither_its_caller_nor_others) {
  auto answer = std::make_shared<std::promise<void>>();
  NodeOptions options;
  options.role = "daemon";
  options.look_up_patience_ns = 1'000'000;
  options.look_up = [answered = answer->get_future().share()](const std::string& host) {
    answered.wait();
    return look_up(host);
  };
  daemon_ = start_node(std::move(options));
  ASSERT_NE(daemon_, nullptr);
  const json hung{{"target", named("both") + "/nothing"}};
  for (int i = 0; i < 2; ++i) {
    const auto waited = daemon_->call("map", hung);
    EXPECT_EQ(waited.code(), Errc::kTimedOut);
    EXPECT_NE(waited.error().message().find("\"both\""), std::string::npos);
  }
  EXPECT_EQ(daemon_->call("map", hung).code(), Errc::kBusy) << "no more workers for names";
  EXPECT_EQ(map("nothing").code(), Errc::kNotFound) << "an address needs none";
  answer->set_value();
  while (daemon_->call("map", hung).code() == Errc::kBusy) std::this_thread::yield();
}

TEST_F(NodeDevices, a_device_is_named_once_and_comes_and_goes) {
  EXPECT_EQ(map("other", {{"name", "ram"}}).code(), Errc::kExists);
  EXPECT_EQ(devices(), 1U);
  auto gone = unmap("ram");
  ASSERT_TRUE(gone.ok()) << gone.error().message();
  EXPECT_EQ((*gone)["device"], device_);
  EXPECT_EQ(unmap("ram").code(), Errc::kNotFound);
  const auto again = map("ram");
  EXPECT_TRUE(again.ok()) << again.error().message();
  EXPECT_TRUE(stop(*daemon_, false).ok());
}

TEST_F(NodeDevices, a_device_in_use_stays_and_the_node_goes_on) {
  {
    const Holder holder(device_);
    const auto refused = unmap("ram");
    EXPECT_EQ(refused.code(), Errc::kBusy);
    const Status stopped = stop(*daemon_, false);
    EXPECT_EQ(stopped.code(), Errc::kBusy);
    EXPECT_NE(stopped.error().message().find(device_), std::string::npos);
    EXPECT_EQ(devices(), 1U);
    const auto other = map("other");
    EXPECT_TRUE(other.ok()) << other.error().message();
  }
  const Status stopped = stop(*daemon_, false);
  EXPECT_TRUE(stopped.ok()) << stopped.error().message();
}

TEST_F(NodeDevices, force_takes_a_device_from_its_users) {
  const Holder holder(device_);
  const auto gone = unmap("ram", /*force=*/true);
  EXPECT_TRUE(gone.ok()) << gone.error().message();
  EXPECT_EQ(devices(), 0U);
}

TEST_F(NodeDevices, force_overtakes_an_unmap_that_waits) {
  const Holder holder(device_);
  auto polite = std::async(std::launch::async, [this] { return unmap("ram"); });
  // Whether it comes before, during or after the polite one's patience.
  const auto gone = unmap("ram", /*force=*/true);
  EXPECT_TRUE(gone.ok()) << gone.error().message();
  const auto other = polite.get();
  EXPECT_TRUE(other.ok() || other.code() == Errc::kBusy || other.code() == Errc::kNotFound)
      << other.error().message();
  EXPECT_EQ(devices(), 0U);
}

TEST_F(NodeDevices, a_stop_by_force_overtakes_one_without) {
  const Holder holder(device_);
  std::promise<Errc> polite;
  daemon_->stop(false, [&polite](const Status& status) { polite.set_value(status.code()); });
  const Status forced = stop(*daemon_, true);
  EXPECT_TRUE(forced.ok()) << forced.error().message();
  const Errc other = polite.get_future().get();
  EXPECT_TRUE(other == Errc::kOk || other == Errc::kBusy) << to_string(other);
  EXPECT_EQ(devices(), 0U);
}

TEST_F(NodeDevices, without_its_server_a_device_goes_once_nobody_uses_it) {
  {
    const Holder holder(device_);
    ASSERT_TRUE(stop(*server_, true).ok());
    while (state() == "open") std::this_thread::yield();
    EXPECT_EQ(unmap("ram").code(), Errc::kBusy);
    EXPECT_EQ(stop(*daemon_, false).code(), Errc::kBusy);
    EXPECT_EQ(devices(), 1U);
  }
  const auto gone = unmap("ram");
  if (!gone.ok()) {  // before Linux 6.5 nothing tells whether pages are dirty
    EXPECT_EQ(gone.code(), Errc::kBusy);
    EXPECT_NE(gone.error().message().find("--force"), std::string::npos);
    EXPECT_TRUE(unmap("ram", /*force=*/true).ok());
  }
  EXPECT_EQ(devices(), 0U);
}

TEST_F(NodeDevices, force_reaches_an_unmap_whose_server_has_gone) {
  auto polite = std::async(std::launch::async, [this] { return unmap("ram").code(); });
  ASSERT_TRUE(stop(*server_, true).ok());
  // The polite one was done before, or refused, or waits for ever.
  const auto gone = unmap("ram", /*force=*/true);
  EXPECT_TRUE(gone.ok() || gone.code() == Errc::kNotFound) << gone.error().message();
  (void)polite.get();
  EXPECT_EQ(devices(), 0U);
}

TEST_F(NodeDevices, stopping_by_force_takes_all_away) {
  ASSERT_TRUE(map("other").ok());
  ASSERT_TRUE(stop(*server_, true).ok());
  EXPECT_TRUE(stop(*daemon_, true).ok());
  EXPECT_EQ(devices(), 0U);
}

TEST_F(NodeDevices, a_node_destroyed_without_a_stop_closes_what_it_has) {
  daemon_.reset();
  auto status = server_->call("status", json::object());
  ASSERT_TRUE(status.ok());
  for (const json& exported : (*status)["exports"]) {
    EXPECT_EQ(exported["state"], "free") << exported;
    if (exported["kind"] != "file") {
      EXPECT_EQ(exported["kernel_cache"], false) << exported;
    }
  }
}

}  // namespace
}  // namespace braid::cli
