// Reactor and timers on a clock that the test moves by hand.
#include "base/reactor.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/test_host.h"

namespace braid::base {
namespace {

class ReactorTest : public testing::Test {
 public:
  ReactorTest() {
    const Reactor::Options options{.name = "r"};
    reactor = std::move(Reactor::create(host, options)).value();
  }
  void advance(uint64_t ns) { host.clock_ns += ns; }

  TestHost host;
  std::unique_ptr<Reactor> reactor;
};

/// A timer that writes its number into a list.
struct Recorder {
  Recorder(std::vector<int>& list, int n) : fired(list), number(n), timer(&on_timer, this) {}
  static void on_timer(Timer& t) {
    auto& self = *static_cast<Recorder*>(t.context);
    self.fired.push_back(self.number);
  }
  std::vector<int>& fired;
  const int number;
  Timer timer;
};

TEST_F(ReactorTest, TimersFireInTheOrderOfDeadlinesAndTiesInTheOrderOfScheduling) {
  std::vector<int> fired;
  Recorder a(fired, 1), b(fired, 2), c(fired, 3), d(fired, 4);
  const uint64_t now = host.clock_ns;
  reactor->schedule(a.timer, now + 30);
  reactor->schedule(b.timer, now + 10);
  reactor->schedule(c.timer, now + 30);
  reactor->schedule(d.timer, now + 20);
  EXPECT_EQ(reactor->next_deadline_ns(), now + 10);
  EXPECT_FALSE(reactor->turn());
  advance(30);
  EXPECT_TRUE(reactor->turn());
  EXPECT_EQ(fired, (std::vector<int>{2, 4, 1, 3}));
  EXPECT_EQ(reactor->next_deadline_ns(), kNever);
  EXPECT_FALSE(a.timer.pending());
}

TEST_F(ReactorTest, ReschedulingMovesATimerAndCancellingRemovesIt) {
  std::vector<int> fired;
  Recorder a(fired, 1), b(fired, 2);
  const uint64_t now = host.clock_ns;
  reactor->schedule(a.timer, now + 10);
  reactor->schedule(a.timer, now + 50);
  reactor->schedule(b.timer, now + 20);
  reactor->cancel(b.timer);
  reactor->cancel(b.timer);
  advance(49);
  EXPECT_FALSE(reactor->turn());
  advance(1);
  EXPECT_TRUE(reactor->turn());
  EXPECT_EQ(fired, std::vector<int>{1});
}

TEST_F(ReactorTest, ATimerDestroyedWhilePendingNeverFires) {
  std::vector<int> fired;
  Recorder keep(fired, 1);
  reactor->schedule_after(keep.timer, 20);
  {
    Recorder gone(fired, 2);
    reactor->schedule_after(gone.timer, 10);
  }
  advance(20);
  reactor->turn();
  EXPECT_EQ(fired, std::vector<int>{1});
}

TEST_F(ReactorTest, ACallbackMayCancelDestroyAndRescheduleTimers) {
  struct Chain {
    explicit Chain(Reactor& r) : reactor(r), timer(&on_timer, this), victim(&on_victim, this) {}
    static void on_timer(Timer& t) {
      auto& self = *static_cast<Chain*>(t.context);
      EXPECT_FALSE(t.pending());
      if (++self.count == 1) self.reactor.cancel(self.victim);
      if (self.count < 3) self.reactor.schedule_after(t, 0);
    }
    static void on_victim(Timer&) { FAIL() << "was cancelled by a callback of the same turn"; }
    Reactor& reactor;
    int count = 0;
    Timer timer, victim;
  };
  Chain chain(*reactor);
  auto doomed =
      std::make_unique<Timer>([](Timer& t) { delete static_cast<Timer*>(t.context); }, nullptr);
  reactor->schedule_after(chain.timer, 10);
  reactor->schedule_after(chain.victim, 10);
  advance(10);
  reactor->turn();
  EXPECT_EQ(chain.count, 1) << "what a callback schedules runs in the next turn";
  reactor->turn();
  reactor->turn();
  EXPECT_EQ(chain.count, 3);
  EXPECT_FALSE(reactor->turn());

  struct SelfDestroying {
    Timer timer{[](Timer& t) { delete static_cast<SelfDestroying*>(t.context); }, this};
  };
  auto* self = new SelfDestroying;  // frees itself: the address sanitizer judges
  reactor->schedule_after(self->timer, 0);
  EXPECT_TRUE(reactor->turn());
}

TEST_F(ReactorTest, ManyTimersScheduledAndCancelledAtRandomFireSorted) {
  struct Stamp {
    explicit Stamp(std::vector<uint64_t>& list) : fired(list), timer(&on_timer, this) {}
    static void on_timer(Timer& t) {
      static_cast<Stamp*>(t.context)->fired.push_back(t.deadline_ns());
    }
    std::vector<uint64_t>& fired;
    Timer timer;
  };
  std::mt19937_64 random(7);
  std::vector<uint64_t> fired;
  std::vector<std::unique_ptr<Stamp>> timers;
  for (int i = 0; i < 500; ++i) timers.push_back(std::make_unique<Stamp>(fired));
  for (int i = 0; i < 5000; ++i) {
    Timer& timer = timers[random() % timers.size()]->timer;
    if (random() % 3 == 0) {
      reactor->cancel(timer);
    } else {
      reactor->schedule(timer, host.clock_ns + 1 + random() % 1000);
    }
  }
  size_t pending = 0;
  for (auto& timer : timers) pending += timer->timer.pending();
  advance(1000);
  reactor->turn();
  EXPECT_EQ(fired.size(), pending);
  EXPECT_TRUE(std::is_sorted(fired.begin(), fired.end()));
}

TEST_F(ReactorTest, TimersThatOutliveTheReactorAreNoLongerPending) {
  std::vector<int> fired;
  Recorder a(fired, 1);
  reactor->schedule_after(a.timer, 10);
  reactor.reset();
  EXPECT_FALSE(a.timer.pending());
}

TEST_F(ReactorTest, LatenessIsMeasuredFromTheDeadlineAfterSleepAndFromTheLastTurnElse) {
  std::vector<int> fired;
  Recorder a(fired, 1);
  reactor->schedule_after(a.timer, 100);
  reactor->turn();
  ASSERT_TRUE(reactor->prepare_sleep());
  advance(100 + 40);
  reactor->turn();
  EXPECT_EQ(reactor->last_lateness_ns(), 40u);
  advance(7000);  // not asleep: the reactor was kept from running
  reactor->turn();
  EXPECT_EQ(reactor->last_lateness_ns(), 7000u);
  ASSERT_TRUE(reactor->prepare_sleep());
  advance(9000);  // asleep without a deadline: not late
  reactor->turn();
  EXPECT_EQ(reactor->last_lateness_ns(), 0u);
}

struct CountingMessage : Message {
  explicit CountingMessage(std::vector<int>& l, int n) : list(l), number(n) {
    run = [](Message& m) {
      auto& self = static_cast<CountingMessage&>(m);
      self.list.push_back(self.number);
    };
  }
  std::vector<int>& list;
  const int number;
};

TEST_F(ReactorTest, MessagesAndFunctionsRunInOrderInTheNextTurn) {
  std::vector<int> ran;
  CountingMessage one(ran, 1), three(ran, 3);
  reactor->post(one);
  reactor->post([&] { ran.push_back(2); });
  reactor->post(three);
  EXPECT_TRUE(ran.empty());
  EXPECT_TRUE(reactor->turn());
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3}));
  reactor->post(one);  // may be used again after it ran
  reactor->turn();
  EXPECT_EQ(ran.back(), 1);
}

TEST_F(ReactorTest, FunctionsNotYetRunAreFreedWithTheReactor) {
  auto token = std::make_shared<int>(1);
  reactor->post([token] { FAIL(); });
  reactor.reset();
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(ReactorTest, AMessageForbidsSleepAndOneAfterPrepareSleepWakes) {
  std::vector<int> ran;
  CountingMessage one(ran, 1);
  reactor->post(one);
  EXPECT_EQ(host.io->wakes, 0) << "an awake reactor needs no wake-up";
  EXPECT_FALSE(reactor->prepare_sleep());
  reactor->turn();
  EXPECT_TRUE(reactor->prepare_sleep());
  reactor->post(one);
  EXPECT_EQ(host.io->wakes, 1);
  reactor->turn();
  EXPECT_EQ(ran.size(), 2u);
}

struct FakePoller : Poller {
  bool poll() override {
    ++polls;
    if (on_poll) on_poll();
    return work-- > 0;
  }
  bool arm() override {
    ++arms;
    return may_sleep;
  }
  bool awaits() const override { return owed; }
  std::function<void()> on_poll;
  int polls = 0, arms = 0, work = 0;
  bool may_sleep = true;
  bool owed = false;
};

TEST_F(ReactorTest, APollerThatFindsWorkWhileArmingForbidsSleep) {
  FakePoller calm, busy;
  reactor->add(calm);
  reactor->add(busy);
  busy.work = 1;
  EXPECT_TRUE(reactor->turn());
  EXPECT_FALSE(reactor->turn());
  busy.may_sleep = false;
  EXPECT_FALSE(reactor->prepare_sleep());
  busy.may_sleep = true;
  EXPECT_TRUE(reactor->prepare_sleep());
  EXPECT_EQ(calm.arms, 2);
  EXPECT_EQ(calm.polls, 2);
}

TEST_F(ReactorTest, AwaitsWhatTheKernelOrAPollersPeerOwes) {
  FakePoller calm, owed, seldom;
  reactor->add(calm);
  reactor->add(owed);
  reactor->poll_seldom(seldom);
  EXPECT_FALSE(reactor->awaits());
  for (FakePoller* const each : {&owed, &seldom}) {
    each->owed = true;
    EXPECT_TRUE(reactor->awaits());
    each->owed = false;
  }
  IoOp op;
  op.done = [](IoOp&, Errc) {};
  reactor->io().submit(op);
  EXPECT_TRUE(reactor->awaits());
  host.io->complete(Errc::kOk);
  EXPECT_FALSE(reactor->awaits());
}

TEST_F(ReactorTest, SleepsLaterWhileAnAnswerIsOwedAndLearnsWhenItComes) {
  FakePoller poller;
  reactor->add(poller);
  host.yield_ns = 10 * kMicrosecond;
  // In microseconds behind the last work.
  const auto sleeps_after = [&](bool answered) {
    poller.work = 1;
    const uint64_t begin_ns = host.clock_ns;
    host.io->on_wait = [&] { reactor->stop(); };
    reactor->run();
    const uint64_t slept_ns = host.clock_ns - begin_ns;
    if (answered) reactor->count_answer();
    return slept_ns / kMicrosecond;
  };
  EXPECT_EQ(sleeps_after(false), 50U);
  poller.owed = true;
  EXPECT_EQ(sleeps_after(false), 200U);
  EXPECT_EQ(sleeps_after(true), 200U);
  EXPECT_EQ(sleeps_after(false), 400U);
  IoOp op;
  op.done = [](IoOp&, Errc) {};
  poller.owed = false;
  reactor->io().submit(op);
  EXPECT_EQ(sleeps_after(false), 200U) << "what came last was no answer";
  host.io->complete(Errc::kOk);
  EXPECT_EQ(sleeps_after(false), 50U);
}

struct CountedEnd : TurnEnd {
  explicit CountedEnd(Reactor& of) : reactor(of) {}
  void turn_ends() override {
    ++count;
    if (again-- > 0) reactor.at_turn_end(*this);
  }
  Reactor& reactor;
  int count = 0;
  int again = 0;
};

TEST_F(ReactorTest, ATurnEndsOnceForAllThatAskedForItAndBeforeSleep) {
  CountedEnd end(*reactor), taken_back(*reactor);
  int at_message = -1;
  reactor->post([&] {
    for (int i = 0; i < 3; ++i) reactor->at_turn_end(end);
    reactor->at_turn_end(taken_back);
    taken_back.unlink();
    at_message = end.count;
  });
  EXPECT_TRUE(reactor->turn());
  EXPECT_EQ(at_message, 0);
  EXPECT_EQ(end.count, 1);
  EXPECT_EQ(taken_back.count, 0);
  EXPECT_FALSE(reactor->turn());
  EXPECT_EQ(end.count, 1) << "it was asked for once";

  reactor->at_turn_end(end);
  EXPECT_TRUE(reactor->prepare_sleep());
  EXPECT_EQ(end.count, 2) << "nobody sleeps over it";

  end.again = 1;
  reactor->at_turn_end(end);
  reactor->end_turn();
  EXPECT_EQ(end.count, 4);
  EXPECT_FALSE(end.linked());
}

TEST_F(ReactorTest, OneFenceDoesForAllThatAskAndComesBeforeSleep) {
  advance(2 * kMillisecond);
  uint64_t promised = 0;
  const auto ask = [&] {
    reactor->post([&] { promised = reactor->ask_fence(); });
    reactor->post([&] { EXPECT_EQ(reactor->ask_fence(), promised); });
    reactor->turn();
  };
  ask();
  EXPECT_EQ(host.heavy_fences, 1);
  EXPECT_EQ(reactor->fences(), promised);
  for (int i = 0; i < 10; ++i) {
    advance(10 * kMicrosecond);
    ask();
  }
  EXPECT_EQ(host.heavy_fences, 1) << "each interrupts all processors";
  EXPECT_LT(reactor->fences(), promised);
  advance(2 * kMillisecond);
  reactor->turn();
  EXPECT_EQ(host.heavy_fences, 2);
  EXPECT_EQ(reactor->fences(), promised);
  reactor->turn();
  EXPECT_EQ(host.heavy_fences, 2) << "nobody has asked";
  ask();
  EXPECT_TRUE(reactor->prepare_sleep());
  EXPECT_EQ(host.heavy_fences, 3);
  EXPECT_EQ(reactor->fences(), promised);
}

/// Armed with all others, before the first of them looks.
struct FencedPoller : Poller {
  explicit FencedPoller(Reactor& of) : reactor(of) {}
  bool poll() override { return false; }
  void begin_arm() override { armed_from = reactor.ask_fence(); }
  bool arm() override { return reactor.fences() >= armed_from; }
  Reactor& reactor;
  uint64_t armed_from = 0;
};

TEST_F(ReactorTest, AllPollersAreArmedByOneFenceBeforeTheyLook) {
  FencedPoller first(*reactor), second(*reactor);
  reactor->add(first);
  reactor->add(second);
  EXPECT_TRUE(reactor->prepare_sleep());
  EXPECT_EQ(host.heavy_fences, 1);
}

TEST_F(ReactorTest, WhoWaitsForAFenceIsPolledSeldomAndBehindIt) {
  FakePoller waits;
  advance(3 * kMillisecond);
  reactor->poll_seldom(waits);
  reactor->turn();
  ASSERT_EQ(waits.polls, 1);
  advance(Reactor::kSeldomNs / 2);  // too soon for another, but for the fence
  reactor->ask_fence();
  reactor->turn();
  ASSERT_EQ(host.heavy_fences, 1);
  EXPECT_EQ(waits.polls, 1) << "in the turn before the fence";
  reactor->turn();
  EXPECT_EQ(waits.polls, 2) << "not in the turn behind the fence";
  reactor->turn();
  EXPECT_EQ(waits.polls, 2) << "again behind the same fence";
  for (int i = 0; i < 40; ++i) {
    advance(Reactor::kSeldomNs / 10);
    reactor->turn();
  }
  EXPECT_EQ(waits.polls, 6);
  reactor->remove(waits);
  reactor->add(waits);
  for (int i = 0; i < 3; ++i) reactor->turn();
  EXPECT_EQ(waits.polls, 9);
}

TEST_F(ReactorTest, OfManyThatArePolledSeldomNoTurnHasAll) {
  std::vector<FakePoller> waits(Reactor::kSeldomMax + 8);
  for (FakePoller& each : waits) reactor->poll_seldom(each);
  const auto polls = [&] {
    int all = 0;
    for (const FakePoller& each : waits) all += each.polls;
    return all;
  };
  constexpr int kMost = static_cast<int>(Reactor::kSeldomMax);
  advance(3 * kMillisecond);  // so that the next fence comes at once
  reactor->turn();
  EXPECT_EQ(polls(), kMost);
  advance(Reactor::kSeldomNs);
  reactor->turn();
  EXPECT_EQ(polls(), 2 * kMost);
  for (const FakePoller& each : waits) EXPECT_GE(each.polls, 1) << "those that have waited longest";
  reactor->ask_fence();
  for (int i = 0; i < 2; ++i) reactor->turn();
  EXPECT_EQ(polls(), 3 * kMost + 8) << "all behind a fence";
}

TEST_F(ReactorTest, WhoIsPolledSeldomIsArmedBeforeSleep) {
  FakePoller waits;
  reactor->poll_seldom(waits);
  waits.may_sleep = false;
  EXPECT_FALSE(reactor->prepare_sleep());
  EXPECT_EQ(waits.arms, 1);
  advance(Reactor::kSeldomNs);
  reactor->turn();
  reactor->turn();
  EXPECT_EQ(waits.polls, 1) << "still seldom";
}

TEST_F(ReactorTest, PollersMayRemoveThemselvesAndOthersAndAddNewOnes) {
  FakePoller self, next, last, added;
  reactor->add(self);
  reactor->add(next);
  reactor->add(last);
  self.on_poll = [&] {
    reactor->remove(self);
    reactor->remove(next);
    reactor->add(added);
  };
  reactor->turn();
  EXPECT_EQ(next.polls, 0);
  EXPECT_EQ(last.polls, 1);
  EXPECT_EQ(added.polls, 0) << "starts with the next turn";
  reactor->turn();
  EXPECT_EQ(self.polls, 1);
  EXPECT_EQ(last.polls, 2);
  EXPECT_EQ(added.polls, 1);
}

}  // namespace
}  // namespace braid::base
