// A port whose interface loses its carrier and gets it again tells so: on a real cable in a network
// namespace of the test's own, and on a host that is a script, for what the kernel cannot be told
// to do.
#include "vhca/soft/tcp/link_watch.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/linux_host.h"
#include "base/linux_test_network.h"
#include "base/log.h"
#include "base/test_host.h"
#include "vhca/port_faults.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft::tcp {
namespace {

using base::kMillisecond;
using base::kNeedsCable;
using base::kSecond;
using base::run_command;
using base::with_cable;

// --- what the kernel tells

constexpr const char* kIp = "10.213.8.1";
constexpr const char* kIpBits = "10.213.8.1/24";

/// Devices in the namespace of the calling thread, in which there is a cable.
struct There {
  std::unique_ptr<base::Host> host;
  std::unique_ptr<base::Reactor> reactor;

  There() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    host = std::move(*base::create_linux_host(options));
    reactor = std::move(*base::Reactor::create(*host, {}));
    // A carrier comes a moment behind the cable.
    EXPECT_TRUE(wait([this] { return host->has_link(kIp) == true; }));
  }
  std::unique_ptr<Device> device(const std::string& ip = kIp) const {
    const TcpDeviceOptions options{.ip = ip, .port_faults = true};
    return std::move(*create_tcp_device(*host, *reactor, options));
  }
  bool wait(const std::function<bool()>& done) const {
    const uint64_t deadline_ns = host->now_ns() + 30 * kSecond;
    while (!done()) {
      if (host->now_ns() > deadline_ns) return false;
      if (!reactor->turn()) host->yield();
    }
    return true;
  }
  /// The next event; none came if it has no value.
  std::optional<ibv_event_type> next(Device& device) const {
    std::optional<AsyncEvent> event;
    if (!wait([&] { return (event = device.next_async_event()).has_value(); })) return {};
    EXPECT_EQ(event->port, 1);
    return event->type;
  }
};

bool active(const Device& device) {
  return device.query_port(1)->state == IBV_PORT_ACTIVE;
}

TEST(LinkWatches, ACableThatIsPulledAndPluggedIsToldByAllItsPorts) {
  const bool ran = with_cable(kIpBits, [] {
    There there;
    const auto one = there.device();
    const auto other = there.device();
    ASSERT_TRUE(run_command("ip addr add 10.213.8.3/24 dev near"));
    const auto beside = there.device("10.213.8.3");
    EXPECT_TRUE(active(*one));
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(run_command("ip link set far down"));
      for (const auto* device : {&one, &other, &beside}) {
        EXPECT_EQ(there.next(**device), IBV_EVENT_PORT_ERR);
        EXPECT_FALSE(active(**device));
      }
      ASSERT_TRUE(run_command("ip link set far up"));
      for (const auto* device : {&one, &other, &beside}) {
        EXPECT_EQ(there.next(**device), IBV_EVENT_PORT_ACTIVE);
        EXPECT_TRUE(active(**device));
      }
    }
    ASSERT_TRUE(run_command("ip link set near down"));
    EXPECT_EQ(there.next(*one), IBV_EVENT_PORT_ERR) << "an operator's doing is the same";
  });
  if (!ran) GTEST_SKIP() << kNeedsCable;
}

TEST(LinkWatches, APortThatBeginsWithoutACableTellsWhenItHasOne) {
  const bool ran = with_cable(kIpBits, [] {
    There there;
    ASSERT_TRUE(run_command("ip link set far down"));
    ASSERT_TRUE(there.wait([&] { return there.host->has_link(kIp) == false; }));
    const auto device = there.device();
    EXPECT_FALSE(active(*device));
    ASSERT_TRUE(run_command("ip link set far up"));
    EXPECT_EQ(there.next(*device), IBV_EVENT_PORT_ACTIVE) << "and no PORT_ERR before";
  });
  if (!ran) GTEST_SKIP() << kNeedsCable;
}

TEST(LinkWatches, APortFollowsItsAddressWhereverThatGoes) {
  const bool ran = with_cable(kIpBits, [] {
    There there;
    const auto device = there.device();
    // Kernels before 6.2 rename no interface that is up.
    const std::string now = run_command("ip link set near name else") ? "else" : "near";
    ASSERT_TRUE(
        run_command("ip link add near2 type veth peer name far2 && "
                    "ip link set near2 up && ip link set far2 up"));
    ASSERT_TRUE(run_command("ip addr del 10.213.8.1/24 dev " + now));
    EXPECT_EQ(there.next(*device), IBV_EVENT_PORT_ERR) << "the address is gone; no event before";
    ASSERT_TRUE(run_command("ip addr add 10.213.8.1/24 dev near2"));
    EXPECT_EQ(there.next(*device), IBV_EVENT_PORT_ACTIVE);
    ASSERT_TRUE(run_command("ip link del " + now));
    ASSERT_TRUE(run_command("ip link del near2"));
    EXPECT_EQ(there.next(*device), IBV_EVENT_PORT_ERR) << "the interface is gone";
    EXPECT_FALSE(active(*device));
    ASSERT_TRUE(
        run_command("ip link add near type veth peer name far && ip link set near up && "
                    "ip link set far up && ip addr add 10.213.8.1/24 dev near"));
    EXPECT_EQ(there.next(*device), IBV_EVENT_PORT_ACTIVE) << "another one has the address";
  });
  if (!ran) GTEST_SKIP() << kNeedsCable;
}

TEST(LinkWatches, AFaultThatIsMadeAndTheCableAreToldAsOne) {
  const bool ran = with_cable(kIpBits, [] {
    There there;
    const auto device = there.device();
    ASSERT_TRUE(set_port_faults(*device, 1, {.down = true}).ok());
    EXPECT_EQ(there.next(*device), IBV_EVENT_PORT_ERR);
    ASSERT_TRUE(run_command("ip link set far down"));
    ASSERT_TRUE(there.wait([&] { return there.host->has_link(kIp) == false; }));
    // Another port's news tell that this one's were heard.
    const auto witness = there.device();
    ASSERT_TRUE(run_command("ip link set far up"));
    EXPECT_EQ(there.next(*witness), IBV_EVENT_PORT_ACTIVE);
    EXPECT_FALSE(device->next_async_event().has_value()) << "it is made to be down";
    ASSERT_TRUE(set_port_faults(*device, 1, {}).ok());
    EXPECT_EQ(there.next(*device), IBV_EVENT_PORT_ACTIVE);
  });
  if (!ran) GTEST_SKIP() << kNeedsCable;
}

TEST(LinkWatches, ADeviceThatGoesWhileNewsComeLeavesNothing) {
  const bool ran = with_cable(kIpBits, [] {
    There there;
    const auto witness = there.device();
    for (int round = 0; round < 4; ++round) {
      auto device = there.device();
      if (round % 2 == 0) (void)there.reactor->turn();
      ASSERT_TRUE(run_command(round % 2 == 0 ? "ip link set far down" : "ip link set far up"));
      device.reset();
      EXPECT_EQ(there.next(*witness), round % 2 == 0 ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
    }
  });
  if (!ran) GTEST_SKIP() << kNeedsCable;
}

TEST(LinkWatches, WhatTheKernelCouldNotTellForLackOfRoomIsFound) {
  const bool ran = with_cable(kIpBits, [] {
    There there;
    const auto device = there.device();
    // Far more than the socket holds (base's test of the same looks at the kernel's counts), then
    // the news that is lost with it.
    ASSERT_TRUE(
        run_command("for i in $(seq 2000); do echo link set lo up; echo link set lo down; "
                    "done | ip -batch -"));
    ASSERT_TRUE(run_command("ip link set far down"));
    ASSERT_TRUE(there.wait([&] { return there.host->has_link(kIp) == false; }));
    EXPECT_EQ(there.next(*device), IBV_EVENT_PORT_ERR);
    ASSERT_TRUE(run_command("ip link set far up"));
    EXPECT_EQ(there.next(*device), IBV_EVENT_PORT_ACTIVE);
  });
  if (!ran) GTEST_SKIP() << kNeedsCable;
}

// --- how a watch asks

class ScriptedQueue : public base::TestIoQueue {
 public:
  explicit ScriptedQueue(base::Watch*& watched) : watched_(watched) {}
  void watch_readable(const base::Handle&, base::Watch& watch) override { watched_ = &watch; }
  void unwatch(base::Watch& watch) override {
    if (watched_ == &watch) watched_ = nullptr;
  }

 private:
  base::Watch*& watched_;
};

class ScriptedHandle : public base::Handle {
 public:
  int fd() const override { return -1; }
  base::Result<std::unique_ptr<base::Handle>> duplicate() const override {
    return base::make_error(base::Errc::kNotSupported, "a script");
  }
};

class ScriptedHost : public base::TestHost {
 public:
  base::Result<std::unique_ptr<base::IoQueue>> create_io_queue() override {
    return std::unique_ptr<base::IoQueue>(std::make_unique<ScriptedQueue>(watched));
  }
  base::Result<std::unique_ptr<base::LinkNews>> watch_links() override {
    if (refusal != base::Errc::kOk) return base::make_error(refusal, "no sockets left");
    return std::unique_ptr<base::LinkNews>(std::make_unique<News>(*this));
  }
  std::optional<bool> has_link(const std::string&) override {
    ++looks;
    clock_ns += look_takes_ns;
    return link;
  }

  base::Errc refusal = base::Errc::kOk;
  bool news = false;
  std::optional<bool> link = true;
  int looks = 0;
  uint64_t look_takes_ns = 0;
  base::Watch* watched = nullptr;

 private:
  class News : public base::LinkNews {
   public:
    explicit News(ScriptedHost& host) : host_(host) {}
    const base::Handle& handle() const override { return handle_; }
    bool take() override { return std::exchange(host_.news, false); }

   private:
    ScriptedHost& host_;
    ScriptedHandle handle_;
  };
};

class LinkLooks : public ::testing::Test {
 protected:
  void create() { watch = LinkWatch::create(host, *reactor, kIp, port); }
  void hear(std::optional<bool> link) {
    host.link = link;
    host.news = true;
    host.watched->ready(*host.watched);
  }
  void pass(uint64_t ns) {
    host.clock_ns += ns;
    (void)reactor->turn();
  }
  std::vector<bool> told() { return std::exchange(told_, {}); }

  ScriptedHost host;
  std::unique_ptr<base::Reactor> reactor = std::move(*base::Reactor::create(host, {}));
  PortState port;
  std::unique_ptr<LinkWatch> watch;

 private:
  void SetUp() override {
    port.on_change([this](bool up) { told_.push_back(up); });
  }
  std::vector<bool> told_;
};

TEST_F(LinkLooks, AFirstNewsIsFollowedAtOnceAndManyByOneLookInAWhile) {
  create();
  EXPECT_EQ(host.looks, 1);
  pass(kSecond);
  hear(false);
  EXPECT_EQ(told(), std::vector{false}) << "at once";
  for (int i = 0; i < 1000; ++i) hear(i % 2 == 0);
  hear(true);
  EXPECT_EQ(host.looks, 2);
  pass(LinkWatch::kLooksApartNs - 1);
  EXPECT_EQ(host.looks, 2);
  pass(1);
  EXPECT_EQ(host.looks, 3);
  EXPECT_EQ(told(), std::vector{true}) << "what holds in the end";
  pass(10 * kSecond);
  EXPECT_EQ(host.looks, 3) << "no news, no looks";
}

TEST_F(LinkLooks, LooksThatTakeLongAreFurtherApart) {
  host.look_takes_ns = 5 * kMillisecond;
  create();
  hear(false);
  pass(LinkWatch::kRestForLook * host.look_takes_ns - 1);
  EXPECT_EQ(host.looks, 1);
  pass(1);
  EXPECT_EQ(host.looks, 2);
  EXPECT_EQ(told(), std::vector{false});
}

TEST_F(LinkLooks, AWakeUpWithoutNewsIsNoReasonToLook) {
  create();
  pass(kSecond);
  host.watched->ready(*host.watched);
  EXPECT_EQ(host.looks, 1);
}

TEST_F(LinkLooks, WhatCannotBeKnownChangesNothingAndIsAskedAgain) {
  create();
  pass(kSecond);
  hear(false);
  EXPECT_EQ(told(), std::vector{false});
  pass(kSecond);
  hear(std::nullopt);
  host.link = true;
  EXPECT_EQ(told(), std::vector<bool>{});
  pass(LinkWatch::kLookAgainNs);
  EXPECT_EQ(told(), std::vector{true}) << "without news";
  pass(kSecond);
  hear(std::nullopt);
  pass(LinkWatch::kLooksApartNs);
  hear(false);
  EXPECT_EQ(told(), std::vector{false}) << "news do not wait for that";
}

TEST_F(LinkLooks, AWatchThatEndsHasNoTimerAndWatchesNothing) {
  create();
  hear(false);  // within the time of the first look
  watch.reset();
  EXPECT_EQ(host.watched, nullptr);
  pass(kSecond);
  EXPECT_EQ(host.looks, 1);
  EXPECT_EQ(told(), std::vector<bool>{});
}

TEST_F(LinkLooks, AHostThatTellsNothingIsNotWatched) {
  host.refusal = base::Errc::kNotSupported;
  create();
  EXPECT_EQ(watch, nullptr);
  host.refusal = base::Errc::kNoMemory;
  create();
  EXPECT_EQ(watch, nullptr);
  EXPECT_EQ(host.looks, 0);
}

// --- a port's state

TEST(PortStates, AFaultAndTheLinkAreToldAsOne) {
  PortState port;
  std::vector<bool> told;
  port.on_change([&](bool up) { told.push_back(up); });
  const auto news = [&] { return std::exchange(told, {}); };
  port.set_link(true);
  EXPECT_EQ(news(), std::vector<bool>{});
  port.set_port(false);
  EXPECT_EQ(news(), std::vector{false});
  port.set_link(false);
  port.set_port(true);
  EXPECT_EQ(news(), std::vector<bool>{}) << "the cable is still pulled";
  port.set_link(true);
  EXPECT_EQ(news(), std::vector{true});
  port.set_link(false);
  port.set_link(false);
  EXPECT_EQ(news(), std::vector{false});
  port.set_port(false);
  port.set_link(true);
  EXPECT_EQ(news(), std::vector<bool>{}) << "it is made to be down";
  port.set_port(true);
  EXPECT_EQ(news(), std::vector{true});
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
