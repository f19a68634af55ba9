// Memory that somebody is in the middle of a copy of is held, and told of when that takes long.
#include "vhca/soft/held_memory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/test_host.h"

namespace braid::vhca::soft {
namespace {

/// Passes at the look of this number.
class CountingFence final : public PeerFence {
 public:
  CountingFence(unsigned& looks, unsigned passes_at) : looks_(looks), passes_at_(passes_at) {}
  bool passed() override { return ++looks_ >= passes_at_; }
  std::string waits_for() const override { return "process 123"; }

 private:
  unsigned& looks_;
  const unsigned passes_at_;
};

/// Does the same at each look.
class ActingFence final : public PeerFence {
 public:
  explicit ActingFence(std::function<void()> action) : action_(std::move(action)) {}
  bool passed() override {
    action_();
    return false;
  }
  std::string waits_for() const override { return "process 123"; }

 private:
  const std::function<void()> action_;
};

class KeepingSink final : public base::LogSink {
 public:
  void write(base::LogLevel, std::string_view, std::string_view message) override {
    lines.emplace_back(message);
    if (action) action();
  }
  std::vector<std::string> lines;
  std::function<void()> action;  // at each line
};

/// Nobody is reached by it.
class SilentWire final : public Wire {
 public:
  std::string kind_text() const override { return "a test"; }
  base::Result<PortAttr> query_port(uint8_t) const override { return PortAttr{}; }
  base::Result<Gid> query_gid(uint8_t, int) const override { return Gid{}; }
  uint8_t port_count() const override { return 1; }
  uint32_t allocate_qp_number() override { return 0; }
  void release_qp_number(uint32_t) override {}
  void release_memory(const MrPlace&) override { ++released; }
  base::Result<std::unique_ptr<Listener>> listen(SoftDevice&, base::Reactor&, const Address&,
                                                 int) override {
    return base::make_error(base::Errc::kNotSupported, "a test");
  }
  base::Task<base::Result<ConnectResult>> connect(SoftDevice&, base::Reactor&, SoftQp&, Address,
                                                  ConnectParameters, uint64_t) override {
    co_return base::make_error(base::Errc::kNotSupported, "a test");
  }
  unsigned released = 0;
};

class TellingHost final : public base::TestHost {
 public:
  explicit TellingHost(std::shared_ptr<base::LogSink> sink) {
    logger = base::Logger(std::move(sink), "test", base::LogLevel::kInfo);
  }
};

class HeldMemoryTest : public testing::Test {
 protected:
  ~HeldMemoryTest() override { held->shut_down(); }
  /// Until nothing is left to do now.
  void settle() {
    while (reactor->turn()) {
    }
  }
  std::shared_ptr<void> hold(unsigned passes_at) {
    const auto memory = std::make_shared<int>(0);
    held->hold({.fence = std::make_unique<CountingFence>(looks, passes_at),
                .length_bytes = 4096,
                .memory = memory});
    settle();
    return memory;
  }
  /// Whether another thread can deregister meanwhile. If not, it does when its turn comes.
  bool others_hold() {
    constexpr std::chrono::seconds kLongest{10};
    others.push_back(std::async(std::launch::async, [this] {
      held->hold({.fence = std::make_unique<CountingFence>(looks_of_others, 1)});
    }));
    return others.back().wait_for(kLongest) == std::future_status::ready;
  }

  const std::shared_ptr<KeepingSink> sink = std::make_shared<KeepingSink>();
  TellingHost host{sink};
  const std::unique_ptr<base::Reactor> reactor = std::move(*base::Reactor::create(host, {}));
  SilentWire wire;
  const std::shared_ptr<HeldMemory> held = std::make_shared<HeldMemory>(*reactor, wire);
  unsigned looks = 0, looks_of_others = 0;
  std::vector<std::future<void>> others;
};

TEST(PassesSoon, looks_no_more_often_than_it_is_told) {
  unsigned looks = 0;
  CountingFence late(looks, 101);
  EXPECT_FALSE(passes_soon(late, 100));
  EXPECT_EQ(looks, 100u);
  EXPECT_TRUE(passes_soon(late, 100));
  EXPECT_EQ(looks, 101u);
}

TEST_F(HeldMemoryTest, a_lock_that_is_taken_again_and_again_is_looked_at_more_than_once_in_a_turn) {
  const auto memory = hold(8);
  EXPECT_EQ(memory.use_count(), 1) << "let go of in the first turn";
  EXPECT_EQ(wire.released, 1u);
  EXPECT_EQ(reactor->next_deadline_ns(), base::kNever);
  EXPECT_TRUE(sink->lines.empty()) << "nothing worth telling";
}

TEST_F(HeldMemoryTest, what_is_held_for_a_second_is_told_once) {
  const auto memory = hold(1'000'000);
  for (unsigned passed_ms = 0; passed_ms < 900; passed_ms += 100) {
    host.clock_ns += 100 * base::kMillisecond;
    settle();
  }
  EXPECT_TRUE(sink->lines.empty());
  for (unsigned passed_ms = 0; passed_ms < 3000; passed_ms += 100) {
    host.clock_ns += 100 * base::kMillisecond;
    settle();
  }
  ASSERT_EQ(sink->lines.size(), 1u);
  EXPECT_NE(sink->lines[0].find("4096 bytes stay registered: process 123"), std::string::npos)
      << sink->lines[0];
  EXPECT_EQ(memory.use_count(), 2) << "still held";
}

TEST_F(HeldMemoryTest, others_deregister_while_it_looks) {
  std::optional<bool> held_meanwhile;
  held->hold({.fence = std::make_unique<ActingFence>([&] {
                if (!held_meanwhile.has_value()) held_meanwhile = others_hold();
              })});
  settle();
  EXPECT_EQ(held_meanwhile, true) << "they spun at the lock";
  EXPECT_EQ(looks_of_others, 1u);
  EXPECT_EQ(wire.released, 1u) << "theirs is not forgotten";
}

TEST_F(HeldMemoryTest, others_deregister_while_it_tells) {
  std::optional<bool> held_meanwhile;
  sink->action = [&] { held_meanwhile = others_hold(); };
  const auto memory = hold(1'000'000);
  host.clock_ns += 2 * base::kSecond;
  settle();
  EXPECT_EQ(sink->lines.size(), 1u);
  EXPECT_EQ(held_meanwhile, true) << "they spun at the lock";
  EXPECT_EQ(wire.released, 1u) << "theirs is not forgotten";
}

TEST_F(HeldMemoryTest, what_was_not_looked_at_yet_goes_with_the_rest_at_the_end) {
  const auto memory = hold(1'000'000);
  held->hold({.fence = std::make_unique<CountingFence>(looks, 1'000'000), .memory = memory});
  held->shut_down();
  EXPECT_EQ(wire.released, 2u);
  EXPECT_EQ(memory.use_count(), 1);
}

TEST_F(HeldMemoryTest, many_that_are_held_share_the_looks_of_a_turn) {
  std::vector<std::shared_ptr<void>> memories;
  for (unsigned i = 0; i < 500; ++i) memories.push_back(hold(1'000'000'000));
  looks = 0;
  host.clock_ns += base::kSecond;
  settle();
  EXPECT_GE(looks, 500u);
  EXPECT_LE(looks, 1024u);
}

}  // namespace
}  // namespace braid::vhca::soft
