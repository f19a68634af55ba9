// Several threads and one or two real reactors: messages, wake-ups and stops that race with sleep.
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/linux/test_support.h"
#include "base/message_queue.h"

namespace braid::base {
namespace {

struct Numbered : Message {
  int producer = 0;
  int number = 0;
};

TEST(MessageQueue, SeveralProducersLoseAndDoubleNothingAndKeepTheirOrder) {
  static constexpr int kProducers = 4;
  static constexpr int kCount = 20'000;
  MessageQueue queue;
  std::vector<std::vector<Numbered>> messages(kProducers);
  for (auto& list : messages) list = std::vector<Numbered>(kCount);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kCount; ++i) {
        Numbered& message = messages[static_cast<size_t>(p)][static_cast<size_t>(i)];
        message.producer = p;
        message.number = i;
        queue.push(message);
      }
    });
  }
  std::vector<int> next(kProducers, 0);
  int disordered = 0;
  for (int taken = 0; taken < kProducers * kCount;) {
    auto* const message = static_cast<Numbered*>(queue.pop());
    if (message == nullptr) {
      std::this_thread::yield();
      continue;
    }
    ++taken;
    disordered += next[static_cast<size_t>(message->producer)]++ != message->number;
  }
  for (auto& producer : producers) producer.join();
  EXPECT_EQ(disordered, 0);
  EXPECT_EQ(queue.pop(), nullptr);
  EXPECT_TRUE(queue.empty());
}

/// A reactor on a thread of its own.
class Worker {
 public:
  Worker(Host& host, uint64_t poll_budget_ns) {
    const Reactor::Options options{.name = "worker", .poll_budget_ns = poll_budget_ns};
    reactor = std::move(Reactor::create(host, options)).value();
    thread = std::move(host.start_thread("worker", [this] { reactor->run(); })).value();
  }
  ~Worker() { end(); }
  void end() {
    if (thread == nullptr) return;
    reactor->stop();
    thread.reset();
  }
  std::unique_ptr<Reactor> reactor;
  std::unique_ptr<Thread> thread;
};

class ReactorThreadsTest : public testing::TestWithParam<uint64_t> {
 public:
  std::unique_ptr<Host> host = quiet_linux_host();
};

/// A message that goes back and forth between two reactors; each time the other one may be just
/// about to sleep. A lost wake-up leaves the test hanging.
struct PingPong : Message {
  PingPong(Reactor& a, Reactor& b, int n) : ends{&a, &b}, left(n) {
    run = [](Message& m) {
      auto& self = static_cast<PingPong&>(m);
      if (--self.left == 0) {
        self.finished.store(true);
        self.finished.notify_one();
      } else {
        self.ends[self.left % 2]->post(self);
      }
    };
  }
  Reactor* const ends[2];
  int left;
  std::atomic<bool> finished{false};
};

TEST_P(ReactorThreadsTest, NoWakeUpIsLostBetweenTwoReactorsThatSleep) {
  Worker a(*host, GetParam()), b(*host, GetParam());
  PingPong one(*a.reactor, *b.reactor, 5000), two(*b.reactor, *a.reactor, 5000);
  a.reactor->post(one);
  a.reactor->post(two);
  one.finished.wait(false);
  two.finished.wait(false);
  a.end();
  b.end();
}

TEST_P(ReactorThreadsTest, ManyThreadsPostToOneReactorThatSleepsBetween) {
  static constexpr int kThreads = 4;
  static constexpr int kCount = 2000;
  Worker worker(*host, GetParam());
  int sum = 0;  // the reactor's
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kCount; ++i) {
        worker.reactor->post([&sum] { ++sum; });
        if (i % 16 == 0) std::this_thread::yield();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::atomic<bool> last{false};
  worker.reactor->post([&] {
    last.store(true);
    last.notify_one();
  });
  last.wait(false);
  worker.end();
  EXPECT_EQ(sum, kThreads * kCount);
}

TEST_P(ReactorThreadsTest, StopEndsARunWheneverItComes) {
  for (int i = 0; i < 200; ++i) {
    Worker worker(*host, GetParam());
    for (int spin = 0; spin < i; ++spin) host->yield();
  }
}

/// Counts what a producer, which wakes it after each, has counted up.
class CountPoller : public Poller {
 public:
  bool poll() override {
    if (seen == made.load()) return false;
    if (++seen == kCount) {
      finished.store(true);
      finished.notify_one();
    }
    return true;
  }
  bool arm() override { return seen == made.load(); }
  static constexpr uint64_t kCount = 5000;
  std::atomic<uint64_t> made{0};
  std::atomic<uint64_t> seen{0};
  std::atomic<bool> finished{false};
};

TEST_P(ReactorThreadsTest, APollerThatIsWokenAfterEachChangeNeedsNoPolling) {
  CountPoller poller;
  Worker worker(*host, GetParam());
  worker.reactor->post([&] { worker.reactor->add(poller); });
  for (uint64_t i = 0; i < CountPoller::kCount; ++i) {
    while (i - poller.seen.load() > 8) host->yield();
    ++poller.made;
    worker.reactor->wake();
  }
  poller.finished.wait(false);
  worker.end();
  EXPECT_EQ(poller.seen.load(), CountPoller::kCount);
}

TEST_P(ReactorThreadsTest, SleepingTasksWakeInTime) {
  Worker worker(*host, GetParam());
  std::atomic<int> ended{0};
  std::atomic<bool> early{false};
  auto body = [](Reactor& r, Host& h, uint64_t ns, std::atomic<int>& e,
                 std::atomic<bool>& too_early) -> Task<> {
    const uint64_t begun_ns = r.now_ns();  // a delay counts from the start of the turn
    co_await r.sleep_ns(ns);
    if (h.now_ns() < begun_ns + ns) too_early.store(true);
    e.fetch_add(1);
    e.notify_one();
  };
  worker.reactor->post([&] {
    for (uint64_t i = 0; i < 20; ++i) {
      worker.reactor->spawn(
          body(*worker.reactor, *host, (20 - i) * 200 * kMicrosecond, ended, early));
    }
  });
  for (int seen = 0; seen < 20; seen = ended.load()) ended.wait(seen);
  worker.end();
  EXPECT_FALSE(early.load());
}

INSTANTIATE_TEST_SUITE_P(PollBudget, ReactorThreadsTest,
                         testing::Values(0, 5 * kMicrosecond, 50 * kMicrosecond),
                         [](const auto& budget) { return std::to_string(budget.param) + "ns"; });

}  // namespace
}  // namespace braid::base
