// What a service manager is told: a socket stands in for it.
#include "cli/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>

#include "base/linux_test_folder.h"
#include "cli/metrics/sample.h"
#include "cli/test_node.h"

namespace braid::cli {
namespace {

using testing::HasSubstr;

/// Receives at "/PATH" or "@NAME".
class Listener {
 public:
  explicit Listener(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    const bool abstract = name[0] == '@';
    if (abstract) address.sun_path[0] = '\0';
    const size_t length = offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1);
    EXPECT_EQ(
        ::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), static_cast<socklen_t>(length)),
        0);
  }
  std::string receive() const {
    char text[4096];
    const ssize_t n = ::recv(fd_.get(), text, sizeof text, 0);
    return n < 0 ? "" : std::string(text, static_cast<size_t>(n));
  }

 private:
  const Fd fd_{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

TEST(ManagerTest, IsToldByAPathAndByAnAbstractName) {
  const base::ScratchFolder folder;
  const std::string abstract = "@braid.test." + std::to_string(::getpid());
  for (const std::string& name : {folder / "notify", abstract}) {
    const Listener listener(name);
    auto manager = Manager::at(name);
    ASSERT_TRUE(manager.ok());
    EXPECT_TRUE((*manager)->there());
    EXPECT_TRUE((*manager)->tell("READY=1\nSTATUS=x").ok());
    EXPECT_EQ(listener.receive(), "READY=1\nSTATUS=x");
  }
}

TEST(ManagerTest, ThatIsNotThereIsAnErrorOnlyIfItWasNamed) {
  auto nobody = Manager::at("");
  ASSERT_TRUE(nobody.ok());
  EXPECT_FALSE((*nobody)->there());
  EXPECT_TRUE((*nobody)->tell("READY=1").ok());
  const base::ScratchFolder folder;
  auto gone = Manager::at(folder / "none");
  ASSERT_TRUE(gone.ok());
  EXPECT_FALSE((*gone)->tell("READY=1").ok());
  expect_refused(Manager::at("relative"), base::Errc::kInvalid, "NOTIFY_SOCKET \"relative\": want");
  expect_refused(Manager::at("/" + std::string(200, 'x')), base::Errc::kInvalid,
                 "characters at most");
  expect_refused(Manager::at("@"), base::Errc::kInvalid, "want the path of a socket");
}

TEST(ManagerTest, WatchdogIntervalsAreThisProcessesOrNone) {
  EXPECT_EQ(*watchdog_interval_ns(nullptr, nullptr, 7), 0U);
  EXPECT_EQ(*watchdog_interval_ns("30000000", nullptr, 7), 30'000'000'000U);
  EXPECT_EQ(*watchdog_interval_ns("30000000", "7", 7), 30'000'000'000U);
  EXPECT_EQ(*watchdog_interval_ns("30000000", "8", 7), 0U);
  for (const char* wrong :
       {"", "x", "-1", "5s", "0", "99999999999999999999", "18446744073709551615"})
    expect_refused(watchdog_interval_ns(wrong, nullptr, 7), base::Errc::kInvalid,
                   "want a number of microseconds");
}

/// A node that says it is alive as long as it is let.
class StandInNode : public Node {
 public:
  base::Result<nlohmann::json> call(std::string_view, const nlohmann::json&) override {
    return nlohmann::json();
  }
  void stop(bool, std::function<void(const base::Status&)>) override {}
  void sample(std::function<void(NodeSample)>) override {}
  void look_alive(std::function<void()> done) override {
    if (++asked == 3) {
      stuck = std::move(done);
      stuck_now.set_value();
    } else {
      done();
    }
  }
  std::atomic<int> asked{0};
  std::function<void()> stuck;
  std::promise<void> stuck_now;
};

TEST(WatchdogTest, TellsAsLongAsTheReactorsRunAndNoLonger) {
  const std::string name = "@braid.test.watchdog." + std::to_string(::getpid());
  const Listener listener(name);
  auto manager = Manager::at(name);
  ASSERT_TRUE(manager.ok());
  StandInNode node;
  {
    const Watchdog watchdog(node, **manager, 1'000'000);
    node.stuck_now.get_future().wait();
    EXPECT_EQ(node.asked, 3) << "asked again though it has not answered";
  }
  ASSERT_TRUE((*manager)->tell("END").ok());
  EXPECT_EQ(listener.receive(), "WATCHDOG=1");
  EXPECT_EQ(listener.receive(), "WATCHDOG=1");
  EXPECT_EQ(listener.receive(), "END");
  node.stuck();  // an answer that comes too late harms nobody
}

TEST(WatchdogTest, HearsOfEachReactorOfANode) {
  NodeOptions options;
  options.role = "server";
  options.serve.emplace();
  options.serve->listen = {"127.0.0.1", 0};
  options.serve->memory = {{"ram", 1 << 20}};
  options.serve->reactors = 3;
  const auto node = start_node(std::move(options));
  ASSERT_NE(node, nullptr);
  const auto alive = std::make_shared<std::promise<void>>();
  node->look_alive([alive] { alive->set_value(); });
  alive->get_future().wait();
  EXPECT_TRUE(stop(*node, false).ok());
}

}  // namespace
}  // namespace braid::cli
