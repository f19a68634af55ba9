// Sessions of the C interface through time: silence of the program, servers that go and come,
// threads that meet, forks, and a loop of the program's own.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "capi/test_context.h"

namespace braid::capi {
namespace {

using test::Context;
using test::new_context;
using test::open;
using test::statistics_of;
using test::until;
using testing::HasSubstr;

/// After which a silent client is taken for dead: HeartbeatOptions.
constexpr uint64_t kHeartbeatBoundNs = 6 * 150 * base::kMillisecond;

class CApiLife : public test::WithServer {
 protected:
  void SetUp() override {
    serve();
    context_ = new_context();
  }
  int read(braid_device* disk) { return ::braid_pread(disk, block_.data(), block_.size(), 0); }
  braid_io read_of(braid_device* disk) {
    return {.op = BRAID_OP_READ, .device = disk, .buffer = block_.data(), .length = block_.size()};
  }

  Context context_;
  std::vector<char> block_ = std::vector<char>(4096);
};

TEST_F(CApiLife, AProgramThatDoesNotCallKeepsItsSession) {
  braid_device* const disk = open(context_, target("disk.img"));
  ASSERT_EQ(read(disk), 0);
  const uint64_t rounds = statistics_of(disk).keeper_rounds;
  const uint64_t age_ns = sessions().at(0).opened_for_ns;
  // By the server's own clock, and while it has the session still.
  EXPECT_TRUE(until([&] {
    const auto there = sessions();
    return there.empty() || there.at(0).opened_for_ns > age_ns + 3 * kHeartbeatBoundNs;
  }));
  EXPECT_EQ(sessions().size(), 1);
  EXPECT_EQ(sessions_opened(), 1);
  EXPECT_EQ(read(disk), 0) << ::braid_error(context_.get());
  EXPECT_EQ(statistics_of(disk).reconnects, 0);
  EXPECT_GT(statistics_of(disk).keeper_rounds, rounds);
}

/// By each wire.
class CApiWires : public CApiLife, public testing::WithParamInterface<bnbd::test::Wire> {
 protected:
  void SetUp() override {
    serve(GetParam());
    context_ = new_context();
    ASSERT_EQ(
        ::braid_set(context_.get(), "wire", GetParam() == bnbd::test::Wire::kTcp ? "tcp" : "auto"),
        0);
  }
  uint64_t reads_at_server() { return sessions().at(0).devices.at(0).statistics.reads; }
};
INSTANTIATE_TEST_SUITE_P(, CApiWires,
                         testing::Values(bnbd::test::Wire::kInHost, bnbd::test::Wire::kTcp),
                         [](const auto& wire) {
                           return wire.param == bnbd::test::Wire::kTcp ? "tcp" : "inhost";
                         });

TEST_P(CApiWires, WhatIsSubmittedIsDoneThoughNobodyPolls) {
  braid_device* const disk = open(context_, target("ram"));
  ASSERT_EQ(read(disk), 0);
  const braid_io io = read_of(disk);
  // The keeper would see to it, too, but later: one of these rounds is without.
  EXPECT_TRUE(until([&] {
    const uint64_t before = reads_at_server();
    const uint64_t rounds = statistics_of(disk).keeper_rounds;
    EXPECT_EQ(::braid_submit(context_.get(), &io, 1), 1);
    EXPECT_TRUE(until([&] { return reads_at_server() > before; }));
    const bool alone = statistics_of(disk).keeper_rounds == rounds;
    braid_completion end{};
    EXPECT_EQ(::braid_poll(context_.get(), &end, 1, -1), 1);
    return alone || HasFailure();
  }));
}

TEST_P(CApiWires, AProgramThatSubmitsAndDoesNotPollKeepsItsSession) {
  braid_device* const disk = open(context_, target("ram"));
  ASSERT_EQ(read(disk), 0);
  const braid_io io = read_of(disk);
  const uint64_t age_ns = sessions().at(0).opened_for_ns;
  EXPECT_TRUE(until([&] {
    EXPECT_GE(::braid_submit(context_.get(), &io, 1), 0);
    const auto there = sessions();
    return there.empty() || there.at(0).opened_for_ns > age_ns + 3 * kHeartbeatBoundNs;
  }));
  EXPECT_EQ(sessions().size(), 1);
  EXPECT_EQ(sessions_opened(), 1);
  EXPECT_EQ(statistics_of(disk).reconnects, 0);
}

TEST_F(CApiLife, DevicesOfOneServerShareASessionAndMemory) {
  braid_device* const first = open(context_, target("ram"));
  braid_device* const second = open(context_, target("beside"));
  EXPECT_EQ(sessions_opened(), 1);
  auto* const memory = static_cast<char*>(::braid_alloc(first, 8192));
  std::memset(memory, 'm', 4096);
  ASSERT_EQ(::braid_pwrite(first, memory, 4096, 0, 0), 0);
  ASSERT_EQ(::braid_pwrite(second, memory, 4096, 4096, 0), 0);
  ASSERT_EQ(::braid_pread(second, memory + 4096, 4096, 4096), 0);
  EXPECT_EQ(std::memcmp(memory, memory + 4096, 4096), 0);
  EXPECT_EQ(statistics_of(first).copies + statistics_of(second).copies, 0);
  braid_device* again = nullptr;
  EXPECT_EQ(::braid_open(context_.get(), target("ram").c_str(), &again), -EEXIST);
  EXPECT_EQ(::braid_close(first), 0);
  ASSERT_EQ(::braid_pread(second, block_.data(), 4096, 4096), 0) << "the session is in use still";
  EXPECT_EQ(::braid_close(second), 0);
  EXPECT_TRUE(until([&] { return sessions().empty(); })) << "the last one ends it";
}

TEST_F(CApiLife, RequestsWaitForAServerThatIsAwayAndGoOn) {
  braid_device* const disk = open(context_, target("disk.img"));
  std::memset(block_.data(), 'w', block_.size());
  server_.reset();
  const braid_io write{.op = BRAID_OP_WRITE,
                       .flags = BRAID_FUA,
                       .device = disk,
                       .buffer = block_.data(),
                       .length = block_.size()};
  ASSERT_EQ(::braid_submit(context_.get(), &write, 1), 1);
  braid_completion end{};
  EXPECT_EQ(::braid_poll(context_.get(), &end, 1, 1'000'000), 0) << "nobody is there to answer";
  EXPECT_THAT(::braid_explain(disk), HasSubstr("127.0.0.1"));
  serve();
  ASSERT_EQ(::braid_poll(context_.get(), &end, 1, -1), 1);
  EXPECT_EQ(end.result, 0);
  EXPECT_GT(statistics_of(disk).reconnects, 0);
  block_.assign(block_.size(), 0);
  ASSERT_EQ(read(disk), 0);
  EXPECT_EQ(block_, std::vector<char>(4096, 'w'));
}

TEST_F(CApiLife, ADeviceThatGivesUpSaysSo) {
  ASSERT_EQ(::braid_set(context_.get(), "give-up-after", "20ms"), 0);
  braid_device* const disk = open(context_, target("disk.img"));
  server_.reset();
  EXPECT_EQ(read(disk), -ETIMEDOUT);
  EXPECT_THAT(::braid_error(context_.get()), HasSubstr("read of 4096 bytes at 0: timed-out"));
}

TEST_F(CApiLife, ASecondThreadIsRefusedAndChangesNothing) {
  braid_device* const disk = open(context_, target("disk.img"));
  server_.reset();
  const braid_io io = read_of(disk);
  std::atomic<bool> submitted = false;
  std::thread other([&] {
    // The test's thread is in now and then, too, and this one is then refused.
    int taken = 0, ended = 0;
    EXPECT_TRUE(until([&] { return (taken = ::braid_submit(context_.get(), &io, 1)) != -EBUSY; }));
    EXPECT_EQ(taken, 1);
    submitted = true;
    braid_completion end{};
    EXPECT_TRUE(
        until([&] { return (ended = ::braid_poll(context_.get(), &end, 1, -1)) != -EBUSY; }));
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(end.result, 0);
  });
  EXPECT_TRUE(
      until([&] { return submitted && ::braid_set(context_.get(), "access", "rw") == -EBUSY; }));
  EXPECT_EQ(::braid_free(context_.get()), -EBUSY);
  serve();
  other.join();
  EXPECT_EQ(::braid_set(context_.get(), "access", "rw"), 0);
}

TEST_F(CApiLife, AContextMayGoFromThreadToThread) {
  braid_device* disk = nullptr;
  std::thread([&] { disk = open(context_, target("disk.img")); }).join();
  for (int i = 0; i < 3; ++i) std::thread([&] { EXPECT_EQ(read(disk), 0); }).join();
  EXPECT_EQ(read(disk), 0);
}

/// What a child finds out, by its exit code.
int in_child(const std::function<bool()>& works) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(works() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

TEST_F(CApiLife, AChildIsRefusedAndTheParentGoesOn) {
  braid_device* const disk = open(context_, target("disk.img"));
  void* const memory = ::braid_alloc(disk, 4096);
  const braid_io io = read_of(disk);
  const int status = in_child([&] {
    braid_completion end{};
    braid_device* device = nullptr;
    struct braid_info info {};
    info.struct_bytes = sizeof info;
    return read(disk) == -EPERM && ::braid_flush(disk) == -EPERM &&
           ::braid_submit(context_.get(), &io, 1) == -EPERM &&
           ::braid_poll(context_.get(), &end, 1, -1) == -EPERM &&
           ::braid_open(context_.get(), "memory:1M", &device) == -EPERM &&
           ::braid_set(context_.get(), "access", "ro") == -EPERM &&
           ::braid_info(disk, &info) == -EPERM && ::braid_alloc(disk, 4096) == nullptr &&
           errno == EPERM && ::braid_dealloc(disk, memory) == -EPERM &&
           ::braid_fd(context_.get()) == -EPERM && ::braid_wake(context_.get()) == -EPERM &&
           ::braid_give_up(disk) == -EPERM && ::braid_close(disk) == -EPERM &&
           ::braid_free(context_.get()) == -EPERM &&
           std::strstr(::braid_error(context_.get()), "before fork()") != nullptr &&
           std::strstr(::braid_explain(disk), "before fork()") != nullptr;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read(disk), 0) << ::braid_error(context_.get());
}

class CApiLoop : public CApiLife {
 protected:
  /// As a program with a loop of its own does.
  int wait_for_one(int descriptor, braid_completion& end) {
    for (;;) {
      const int count = ::braid_poll(context_.get(), &end, 1, 0);
      if (count != 0) return count;
      pollfd wait{.fd = descriptor, .events = POLLIN, .revents = 0};
      if (::poll(&wait, 1, 120'000) == 0) return 0;
    }
  }
};

TEST_F(CApiLoop, ADescriptorTellsOfCompletions) {
  braid_device* const disk = open(context_, target("disk.img"));
  const int descriptor = ::braid_fd(context_.get());
  ASSERT_GE(descriptor, 0);
  EXPECT_EQ(::braid_fd(context_.get()), descriptor);
  for (uint64_t i = 0; i < 200; ++i) {
    braid_io io = read_of(disk);
    io.user_data = i;
    ASSERT_EQ(::braid_submit(context_.get(), &io, 1), 1);
    braid_completion end{};
    ASSERT_EQ(wait_for_one(descriptor, end), 1);
    EXPECT_EQ(end.user_data, i);
    EXPECT_EQ(end.result, 0);
  }
}

TEST_F(CApiLoop, AServerThatComesBackWakesAProgramThatSleepsElsewhere) {
  braid_device* const disk = open(context_, target("disk.img"));
  const int descriptor = ::braid_fd(context_.get());
  server_.reset();
  const braid_io io = read_of(disk);
  ASSERT_EQ(::braid_submit(context_.get(), &io, 1), 1);
  braid_completion end{};
  ASSERT_EQ(::braid_poll(context_.get(), &end, 1, 0), 0);
  std::thread again([&] { serve(); });
  EXPECT_EQ(wait_for_one(descriptor, end), 1);
  EXPECT_EQ(end.result, 0);
  again.join();
}

TEST_F(CApiLoop, ContextsOfSeveralThreadsDoNotMeet) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const Context context = new_context();
      ASSERT_EQ(::braid_set(context.get(), "access", "ro"), 0);
      braid_device* const disk = open(context, target("disk.img"));
      std::vector<char> block(4096);
      for (int n = 0; n < 50; ++n) ASSERT_EQ(::braid_pread(disk, block.data(), block.size(), 0), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace braid::capi
