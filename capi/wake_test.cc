// braid_wake(): from other threads and from signal handlers, while the server is away.
#include <gmock/gmock.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include "capi/test_context.h"

namespace braid::capi {
namespace {

using test::open;
using test::until;

constexpr int kRounds = 100;
constexpr int64_t kPatienceNs = 120'000'000'000;

/// What the handler of SIGUSR1 wakes; null: it only counts.
std::atomic<braid_context*> woken_by_signal;
std::atomic<int> signals;

void on_signal(int) {
  if (braid_context* const context = woken_by_signal) ::braid_wake(context);
  ++signals;
}

/// With a request that waits for a server that is away.
class CApiWake : public test::WithServer {
 protected:
  void SetUp() override {
    serve();
    context_ = test::new_context();
    ASSERT_EQ(::braid_set(context_.get(), "poll", poll_budget()), 0);
    disk_ = open(context_, target("disk.img"));
    server_.reset();
    submit();
    woken_by_signal = nullptr;
    signals = 0;
    struct sigaction action {};
    action.sa_handler = &on_signal;
    ASSERT_EQ(::sigaction(SIGUSR1, &action, &before_), 0);
  }
  void TearDown() override { ::sigaction(SIGUSR1, &before_, nullptr); }
  virtual const char* poll_budget() const { return "0"; }

  void submit() {
    const braid_io read{
        .op = BRAID_OP_READ, .device = disk_, .buffer = block_.data(), .length = block_.size()};
    ASSERT_EQ(::braid_submit(context_.get(), &read, 1), 1);
  }
  int poll(int64_t timeout_ns) { return ::braid_poll(context_.get(), &end_, 1, timeout_ns); }
  /// Waits in another thread so many times, each until it is woken, by `wake` with that thread.
  template <typename Wake>
  void expect_woken(Wake wake) {
    std::atomic<int> ended = 0;
    std::thread waiter([&] {
      for (int i = 0; i < kRounds; ++i) {
        EXPECT_EQ(poll(-1), 0);
        ++ended;
      }
    });
    for (int i = 0; i < kRounds; ++i) {
      EXPECT_EQ(ended, i);
      wake(waiter.native_handle());
      EXPECT_TRUE(until([&] { return ended == i + 1; }));
    }
    waiter.join();
  }
  void expect_the_completion() {
    serve();
    ASSERT_EQ(poll(-1), 1);
    EXPECT_EQ(end_.result, 0);
  }

  test::Context context_;
  braid_device* disk_ = nullptr;
  std::vector<char> block_ = std::vector<char>(4096);
  braid_completion end_{};
  struct sigaction before_ {};
};

class CApiWakeSpinning : public CApiWake {
 protected:
  const char* poll_budget() const override { return "never"; }
};

TEST_F(CApiWake, EndsAPollOfAnotherThread) {
  expect_woken([&](pthread_t) { EXPECT_EQ(::braid_wake(context_.get()), 0); });
  expect_the_completion();
}

TEST_F(CApiWakeSpinning, EndsAPollOfAnotherThread) {
  expect_woken([&](pthread_t) { EXPECT_EQ(::braid_wake(context_.get()), 0); });
  expect_the_completion();
}

/// How often the calling thread has slept so far; who gives up the processor does not count.
long sleeps() {
  struct rusage usage {};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

/// Of the polls not all need sleep where the machine is busy: a thread that did not run until its
/// time was over does not begin to.
TEST_F(CApiWakeSpinning, SleepsWhenItIsToldSoThoughADeviceIsOpen) {
  ASSERT_EQ(::braid_set(context_.get(), "poll", "0"), 0);
  int slept = 0;
  for (int i = 0; i < 20; ++i) {
    const long before = sleeps();
    EXPECT_EQ(poll(5'000'000), 0);
    if (sleeps() > before) ++slept;
  }
  EXPECT_GE(slept, 5) << "the context was opened with poll = never";
  expect_the_completion();
}

TEST_F(CApiWake, MayBeCalledByASignalHandler) {
  woken_by_signal = context_.get();
  expect_woken([&](pthread_t waiter) { EXPECT_EQ(::pthread_kill(waiter, SIGUSR1), 0); });
  expect_the_completion();
}

TEST_F(CApiWake, ASignalAloneEndsNoPoll) {
  std::atomic<bool> over = false;
  std::thread waiter([&] {
    EXPECT_EQ(poll(-1), 0);
    over = true;
  });
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_EQ(::pthread_kill(waiter.native_handle(), SIGUSR1), 0);
    EXPECT_TRUE(until([&] { return signals == i + 1; }));
  }
  EXPECT_FALSE(over);
  EXPECT_EQ(::braid_wake(context_.get()), 0);
  waiter.join();
  expect_the_completion();
}

TEST_F(CApiWake, WhatCameBeforeEndsTheNextPollOnce) {
  EXPECT_EQ(poll(0), 0);
  errno = ENOTTY;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(::braid_wake(context_.get()), 0);
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_EQ(poll(0), 0) << "does not wait, so it takes no wake";
  EXPECT_EQ(poll(-1), 0);
  expect_the_completion();
}

TEST_F(CApiWake, EndsNoCallThatWaitsForOneRequest) {
  std::atomic<bool> over = false;
  std::vector<char> block(4096);
  std::thread reader([&] {
    int status = -EBUSY;  // while the test's thread is in
    EXPECT_TRUE(until([&] {
      status = ::braid_pread(disk_, block.data(), block.size(), 0);
      return status != -EBUSY;
    }));
    EXPECT_EQ(status, 0);
    over = true;
  });
  EXPECT_TRUE(until([&] { return ::braid_set(context_.get(), "access", "rw") == -EBUSY; }));
  for (int i = 0; i < kRounds; ++i) EXPECT_EQ(::braid_wake(context_.get()), 0);
  EXPECT_FALSE(over);
  serve();
  reader.join();
  int ended = 0;
  for (int i = 0; i < 2 && ended == 0; ++i) ended = poll(-1);
  EXPECT_EQ(ended, 1) << "one poll at most returns 0 for them";
}

TEST_F(CApiWake, WhoIsRefusedForAnotherThreadIsToldOfIt) {
  ASSERT_EQ(::braid_alloc(disk_, 0), nullptr);
  EXPECT_THAT(::braid_error(context_.get()), testing::HasSubstr("memory of 0 bytes"));
  std::thread waiter([&] { EXPECT_TRUE(until([&] { return poll(-1) == 0; })); });
  EXPECT_TRUE(until([&] {
    errno = 0;
    void* const memory = ::braid_alloc(disk_, 4096);
    if (memory != nullptr) ::braid_dealloc(disk_, memory);
    return memory == nullptr;
  }));
  EXPECT_EQ(errno, EBUSY);
  EXPECT_STREQ(::braid_error(context_.get()), "another thread is using the context");
  EXPECT_STREQ(::braid_explain(disk_), "another thread is using the context");
  EXPECT_EQ(::braid_wake(context_.get()), 0);
  waiter.join();
  EXPECT_THAT(::braid_error(context_.get()), testing::HasSubstr("memory of 0 bytes"));
}

TEST_F(CApiWake, LosesNoCompletion) {
  expect_the_completion();
  std::atomic<bool> over = false;
  std::thread waker([&] {
    while (!over) EXPECT_EQ(::braid_wake(context_.get()), 0);
  });
  for (int i = 0; i < 10 * kRounds; ++i) {
    submit();
    EXPECT_TRUE(until([&] { return poll(-1) == 1; }));
    EXPECT_EQ(end_.result, 0);
  }
  over = true;
  waker.join();
}

TEST_F(CApiWake, WhatWaitedIsGivenUpByWhoWantsTo) {
  EXPECT_EQ(::braid_wake(context_.get()), 0);
  EXPECT_EQ(poll(-1), 0);
  EXPECT_TRUE(until([&] {
    EXPECT_EQ(::braid_give_up(disk_), 0);
    return poll(1'000'000) == 1;
  }));
  EXPECT_EQ(end_.result, -ETIMEDOUT);
  EXPECT_EQ(::braid_pread(disk_, block_.data(), block_.size(), 0), -ETIMEDOUT);
  EXPECT_THAT(::braid_explain(disk_), testing::HasSubstr("did not want to wait"));
  serve();
  EXPECT_TRUE(until([&] { return ::braid_pread(disk_, block_.data(), block_.size(), 0) == 0; }));
  EXPECT_EQ(::braid_give_up(disk_), 0) << "it is there";
  submit();
  ASSERT_EQ(poll(-1), 1);
  EXPECT_EQ(end_.result, 0);
}

TEST_F(CApiWake, MakesTheDescriptorReadable) {
  pollfd wait{.fd = ::braid_fd(context_.get()), .events = POLLIN, .revents = 0};
  ASSERT_GE(wait.fd, 0);
  std::atomic<int> asked = 0, seen = 0;
  std::thread waker([&] {
    for (int i = 0; i < kRounds; ++i) {
      ++asked;
      EXPECT_EQ(::braid_wake(context_.get()), 0);
      EXPECT_TRUE(until([&] { return seen == asked; }));
    }
  });
  while (seen < kRounds) {
    seen = asked.load();
    if (poll(0) != 0 || ::poll(&wait, 1, 120'000) == 0) break;
  }
  EXPECT_EQ(seen, kRounds);
  waker.join();
}

/// Whoever looks for what it was woken for before braid_poll(0) would else sleep on it.
TEST_F(CApiWake, MakesTheDescriptorReadableForThePollThatTakesIt) {
  pollfd wait{.fd = ::braid_fd(context_.get()), .events = POLLIN, .revents = 0};
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_EQ(::braid_wake(context_.get()), 0);
    EXPECT_EQ(poll(0), 0);
    EXPECT_EQ(::poll(&wait, 1, 0), 1);
  }
  expect_the_completion();
}

class CApiWakeEarly : public test::WithServer {};

/// Of that open nothing is left, its reactor neither.
TEST_F(CApiWakeEarly, EndsTheFirstWaitAlsoAfterAnOpenThatFailed) {
  serve();
  std::vector<char> block(4096);
  const test::Context context = test::new_context();
  braid_device* disk = nullptr;
  ASSERT_NE(::braid_open(context.get(), target("gone").c_str(), &disk), 0);
  EXPECT_EQ(::braid_wake(context.get()), 0);
  disk = open(context, target("disk.img"));
  server_.reset();
  const braid_io read{
      .op = BRAID_OP_READ, .device = disk, .buffer = block.data(), .length = block.size()};
  ASSERT_EQ(::braid_submit(context.get(), &read, 1), 1);
  braid_completion end{};
  EXPECT_EQ(::braid_poll(context.get(), &end, 1, -1), 0);
}

TEST(CApiWakes, OfContextsWithoutDevices) {
  const test::Context context = test::new_context();
  EXPECT_EQ(::braid_wake(context.get()), 0);
  braid_completion end{};
  EXPECT_EQ(::braid_poll(context.get(), &end, 1, kPatienceNs), 0);
  EXPECT_EQ(::braid_wake(nullptr), -EINVAL);
  EXPECT_EQ(::braid_give_up(nullptr), -EINVAL);
  EXPECT_EQ(::braid_give_up(open(context, "memory:1M")), 0) << "it is never away";
}

}  // namespace
}  // namespace braid::capi
