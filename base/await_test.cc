// Tasks on a reactor: each awaitable, and cancellation at each suspension point.
#include "base/await.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/test_host.h"

namespace braid::base {
namespace {

/// Says when the frame that holds it is destroyed.
class Sentinel {
 public:
  explicit Sentinel(int& destroyed) : destroyed_(&destroyed) {}
  Sentinel(Sentinel&& other) noexcept : destroyed_(std::exchange(other.destroyed_, nullptr)) {}
  ~Sentinel() {
    if (destroyed_ != nullptr) ++*destroyed_;
  }

 private:
  int* destroyed_;
};

class AwaitTest : public testing::Test {
 public:
  AwaitTest() {
    const Reactor::Options options{.name = "r"};
    reactor = std::move(Reactor::create(host, options)).value();
  }
  /// Lets time pass, then turns until nothing happens.
  void advance(uint64_t ns) {
    host.clock_ns += ns;
    while (reactor->turn()) {
    }
  }

  TestHost host;
  std::unique_ptr<Reactor> reactor;
  std::vector<std::string> log;
  int destroyed = 0;
};

TEST_F(AwaitTest, SleepResumesAtItsDeadline) {
  auto body = [](AwaitTest& t) -> Task<> {
    t.log.push_back("start");
    co_await t.reactor->sleep_ns(100);
    t.log.push_back("end");
  };
  reactor->spawn(body(*this));
  EXPECT_EQ(log.size(), 1u);
  advance(99);
  EXPECT_EQ(log.size(), 1u);
  advance(1);
  EXPECT_EQ(log.back(), "end");
}

TEST_F(AwaitTest, NestedTasksGiveTheirValuesUpwards) {
  struct Body {
    static Task<Result<int>> leaf(Reactor& r, int v) {
      co_await r.sleep_ns(10);
      if (v < 0) co_return make_error(Errc::kInvalid, "{} is negative", v);
      co_return v * 2;
    }
    static Task<Result<int>> middle(Reactor& r, int v) {
      BRAID_CO_TRY(const int a, co_await leaf(r, v));
      BRAID_CO_TRY(const int b, co_await leaf(r, a - 100));
      co_return a + b;
    }
    static Task<> root(Reactor& r, int v, std::vector<std::string>& log) {
      const Result<int> result = co_await middle(r, v);
      log.push_back(result.ok() ? "value" : result.error().message());
    }
  };
  reactor->spawn(Body::root(*reactor, 60, log));
  reactor->spawn(Body::root(*reactor, 1, log));
  advance(10);
  advance(10);
  EXPECT_EQ(log, (std::vector<std::string>{"value", "-98 is negative"}));
}

TEST_F(AwaitTest, SpawnedTasksAreFreedWhenTheyEnd) {
  auto body = [](Reactor& r, Sentinel) -> Task<> { co_await r.sleep_ns(5); };
  reactor->spawn(body(*reactor, Sentinel(destroyed)));
  EXPECT_EQ(destroyed, 0);
  advance(5);
  EXPECT_EQ(destroyed, 1);
}

TEST_F(AwaitTest, TheReactorDestroysTasksAtEverySuspensionPointNestedOnesToo) {
  struct Body {
    static Task<> sleeper(Reactor& r, Sentinel) { co_await r.sleep_ns(1000); }
    static Task<> outer(Reactor& r, Sentinel, int& d) { co_await sleeper(r, Sentinel(d)); }
    static Task<> offloader(Reactor& r, Sentinel) {
      co_await r.offload([] {});
    }
    static Task<> waiter(Signal& s, Sentinel) { co_await s.wait(); }
    static Task<Result<int>> slow(Reactor& r, Sentinel) {
      co_await r.sleep_ns(5000);
      co_return 1;
    }
    static Task<> limited(Reactor& r, Sentinel, int& d) {
      (void)co_await r.with_timeout(slow(r, Sentinel(d)), 4000);
    }
  };
  Signal notified(*reactor), silent(*reactor);
  reactor->spawn(Body::outer(*reactor, Sentinel(destroyed), destroyed));
  reactor->spawn(Body::offloader(*reactor, Sentinel(destroyed)));
  reactor->spawn(Body::waiter(notified, Sentinel(destroyed)));
  reactor->spawn(Body::waiter(silent, Sentinel(destroyed)));
  reactor->spawn(Body::limited(*reactor, Sentinel(destroyed), destroyed));
  notified.notify_all();  // to be resumed in a turn that does not come
  EXPECT_EQ(destroyed, 0);
  reactor.reset();
  EXPECT_EQ(destroyed, 7);
  EXPECT_FALSE(silent.has_waiters());
  host.run_work();  // the worker finds the reactor gone
}

TEST_F(AwaitTest, DestroyingATaskUnlinksItsTimer) {
  auto body = [](Reactor& r, Sentinel) -> Task<> { co_await r.sleep_ns(10); };
  Task<> task = body(*reactor, Sentinel(destroyed));
  task.start();
  EXPECT_NE(reactor->next_deadline_ns(), kNever);
  task = Task<>();
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(reactor->next_deadline_ns(), kNever);
}

TEST_F(AwaitTest, OffloadRunsTheWorkOutsideAndResumesOnTheReactor) {
  auto body = [](AwaitTest& t) -> Task<> {
    co_await t.reactor->offload([&t] { t.log.push_back("work"); });
    t.log.push_back("after");
  };
  reactor->spawn(body(*this));
  EXPECT_TRUE(log.empty());
  host.run_work();
  EXPECT_EQ(log.size(), 1u) << "resumes in a turn, not on the worker";
  reactor->turn();
  EXPECT_EQ(log.back(), "after");
}

TEST_F(AwaitTest, WorkEndsAlthoughItsTaskWasCancelled) {
  bool worked = false;
  auto body = [](Reactor& r, bool& w) -> Task<> { co_await r.offload([&w] { w = true; }); };
  Task<> task = body(*reactor, worked);
  task.start();
  task = Task<>();
  host.run_work();
  reactor->turn();
  EXPECT_TRUE(worked);
}

Task<Result<int>> answer_after(Reactor& reactor, uint64_t ns, Sentinel) {
  if (ns > 0) co_await reactor.sleep_ns(ns);
  co_return 42;
}

Task<> limited_answer(Reactor& r, uint64_t ns, uint64_t limit, Sentinel s,
                      std::vector<std::string>& log) {
  const auto value = co_await r.with_timeout(answer_after(r, ns, std::move(s)), limit);
  log.push_back(!value ? "timeout" : value->ok() ? "value" : "error");
}

TEST_F(AwaitTest, WithTimeoutGivesTheValueOrDestroysTheTask) {
  reactor->spawn(limited_answer(*reactor, 50, 100, Sentinel(destroyed), log));
  advance(50);
  EXPECT_EQ(log.back(), "value");
  EXPECT_EQ(reactor->next_deadline_ns(), kNever) << "the limit's timer is gone";
  EXPECT_EQ(destroyed, 1);

  reactor->spawn(limited_answer(*reactor, 500, 100, Sentinel(destroyed), log));
  advance(100);
  EXPECT_EQ(log.back(), "timeout");
  EXPECT_EQ(destroyed, 2);
  EXPECT_EQ(reactor->next_deadline_ns(), kNever) << "the task's timer is gone";

  reactor->spawn(limited_answer(*reactor, 0, 100, Sentinel(destroyed), log));
  EXPECT_EQ(log.size(), 3u);
  EXPECT_EQ(log.back(), "value") << "a task that ends at once";

  reactor->spawn(limited_answer(*reactor, 70, kNever, Sentinel(destroyed), log));
  advance(70);
  EXPECT_EQ(log.size(), 4u);
}

TEST_F(AwaitTest, SignalWakesAllWaitersInOrderInTheNextTurn) {
  Signal signal(*reactor);
  auto body = [](AwaitTest& t, Signal& s, std::string name) -> Task<> {
    co_await s.wait();
    t.log.push_back(name);
    co_await s.wait();
    t.log.push_back(name + " again");
  };
  reactor->spawn(body(*this, signal, "a"));
  reactor->spawn(body(*this, signal, "b"));
  signal.notify_all();
  EXPECT_TRUE(log.empty());
  EXPECT_FALSE(reactor->prepare_sleep()) << "somebody is to be resumed";
  advance(0);
  EXPECT_EQ(log, (std::vector<std::string>{"a", "b"}));
  signal.notify_all();
  advance(0);
  EXPECT_EQ(log.back(), "b again");
}

TEST_F(AwaitTest, ATaskMayEndAnotherFromWithin) {
  Task<> victim = [](Reactor& r, Sentinel) -> Task<> { co_await r.sleep_ns(10); }(
                                               *reactor, Sentinel(destroyed));
  victim.start();
  reactor->spawn([](Reactor& r, Task<>& v) -> Task<> {
    co_await r.sleep_ns(10);
    v = Task<>();
  }(*reactor, victim));
  // Both are due in the same turn; the victim runs first, then is destroyed at its end.
  advance(10);
  EXPECT_EQ(destroyed, 1);
}

// g++ 12 destroys an aggregate temporary of a full expression with co_await twice. The rule of the
// tree is to name it first; this shows that the named form destroys once.
struct Aggregate {
  std::shared_ptr<int> token;
  int number = 0;
};

Task<int> uses(Reactor& reactor, Aggregate options) {
  co_await reactor.sleep_ns(1);
  co_return options.number + static_cast<int>(options.token.use_count() > 0);
}

TEST_F(AwaitTest, OptionsNamedBeforeCoAwaitAreDestroyedOnce) {
  auto token = std::make_shared<int>(0);
  auto body = [](Reactor& r, std::shared_ptr<int> t, std::vector<std::string>& out) -> Task<> {
    const Aggregate options{.token = t, .number = 6};
    const int got = co_await uses(r, options);
    out.push_back(std::to_string(got));
  };
  reactor->spawn(body(*reactor, token, log));
  advance(1);
  EXPECT_EQ(log, std::vector<std::string>{"7"});
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(AwaitTest, ClosuresNamedBeforeCoAwaitAreDestroyedOnce) {
  auto token = std::make_shared<int>(0);
  auto body = [](Reactor& r, std::shared_ptr<int> t) -> Task<> {
    auto work = [t] { ++*t; };
    co_await r.offload(std::move(work));
    co_await r.sleep_ns(1);
  };
  reactor->spawn(body(*reactor, token));
  host.run_work();
  advance(0);
  advance(1);
  EXPECT_EQ(*token, 1);
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace braid::base
