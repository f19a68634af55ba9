// The order in which a device is asked to go, with steps that do as the test says.
#include "bnbd/frontend/detach_policy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <string>
#include <utility>

#include "bnbd/frontend/test_kernel_device.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using base::Status;

Status outcome(Errc code) {
  return code == Errc::kOk ? base::ok_status() : base::make_error(code, "as the test says");
}

class DetachPolicy : public testing::Test {
 protected:
  base::Result<Detached> detach(bool force) {
    return detach(force ? DetachMode::kForce : DetachMode::kPolite);
  }
  base::Result<Detached> detach(DetachMode mode) {
    DetachSteps steps;
    steps.name = "braid-no-such-device";  // nobody uses it
    steps.mode = mode;
    steps.force_flush_timeout_ns = force_flush_timeout_ns_;
    steps.remove_politely = [this] {
      ++polite_;
      if (write_back_.valid()) write_back_.wait();
      return next(polite_outcomes_);
    };
    steps.remove_if_clean = [this] {
      ++silent_;
      return next(polite_outcomes_);
    };
    steps.write_back = [this] {
      ++written_back_;
      if (users_write_.valid()) users_write_.wait();
      return outcome(write_back_outcome_);
    };
    steps.remove_by_force = [this] {
      ++forced_;
      return next(forced_outcomes_);
    };
    steps.fail_waiting = [this] { requests_failed_.set_value(); };
    steps.errors = [this] { return written_back_ * failed_requests_; };
    steps.answered = [this] { return answered(); };
    steps.cut_off = [this] { cut_off(); };
    return threads_.await([&] { return run_detach(threads_.reactor(), steps); });
  }
  /// Of a device that answers one request after the other, and stops when the users' data is there.
  uint64_t answered() {
    if (requests_left_ > 0 && --requests_left_ == 0) users_are_done_.set_value();
    return requests_left_;
  }
  void cut_off() {
    if (++cut_off_ == 1 && write_back_.valid()) pages_failed_.set_value();
  }
  static Status next(std::deque<Errc>& outcomes) {
    const Errc code = outcomes.front();
    if (outcomes.size() > 1) outcomes.pop_front();  // the last one stays
    return outcome(code);
  }

  std::deque<Errc> polite_outcomes_ = {Errc::kOk};
  std::deque<Errc> forced_outcomes_ = {Errc::kOk};
  uint64_t force_flush_timeout_ns_ = 600 * base::kSecond;
  std::promise<void> pages_failed_;
  std::future<void> write_back_;  // valid: writing back takes until the device is cut off
  std::promise<void> requests_failed_;
  std::future<void> users_write_;  // valid: writing back takes until requests are failed
  Errc write_back_outcome_ = Errc::kOk;
  std::promise<void> users_are_done_;
  unsigned requests_left_ = 0;
  uint64_t failed_requests_ = 0;  // when written back
  int polite_ = 0;
  int silent_ = 0;
  std::atomic<uint64_t> written_back_{0};
  int forced_ = 0;
  int cut_off_ = 0;
  test::ReactorThread threads_;  // goes first: its workers may still tell what they have done
};

TEST_F(DetachPolicy, IsPoliteToAFreeDeviceEvenWithForce) {
  EXPECT_TRUE(detach(false).ok());
  EXPECT_TRUE(detach(true).ok());
  EXPECT_EQ(polite_, 2);
  EXPECT_EQ(forced_ + cut_off_, 0);
}

TEST_F(DetachPolicy, WaitsForThoseWhoOnlyLook) {
  polite_outcomes_ = {Errc::kBusy, Errc::kOk};
  EXPECT_TRUE(detach(false).ok());
  EXPECT_EQ(polite_, 2);
}

TEST_F(DetachPolicy, LeavesADeviceThatStaysInUse) {
  polite_outcomes_ = {Errc::kBusy};
  EXPECT_EQ(detach(false).code(), Errc::kBusy);
  EXPECT_GT(polite_, 1);
  EXPECT_EQ(forced_ + cut_off_, 0);
}

TEST_F(DetachPolicy, LeavesADeviceWhosePagesCannotBeWritten) {
  polite_outcomes_ = {Errc::kIo};
  EXPECT_EQ(detach(false).code(), Errc::kIo);
  EXPECT_EQ(polite_, 1) << "an error does not pass by waiting";
  EXPECT_EQ(forced_ + cut_off_, 0);
}

TEST_F(DetachPolicy, CutsADeviceInUseOffWithForceOnceItsUsersDataIsWritten) {
  polite_outcomes_ = {Errc::kBusy};
  forced_outcomes_ = {Errc::kBusy};  // it goes with its last user
  auto detached = detach(true);
  ASSERT_TRUE(detached.ok());
  EXPECT_EQ(detached->lost, "");
  EXPECT_EQ(polite_, 1);
  EXPECT_EQ(written_back_.load(), 1U);
  EXPECT_EQ(cut_off_, 1);
  EXPECT_EQ(forced_, 1);
}

TEST_F(DetachPolicy, SaysWhatForceLoses) {
  polite_outcomes_ = {Errc::kBusy};
  write_back_outcome_ = Errc::kIo;
  EXPECT_EQ(detach(true)->lost, "as the test says");
  write_back_outcome_ = Errc::kOk;
  failed_requests_ = 3;
  EXPECT_EQ(detach(true)->lost, "3 requests of its write-back failed");
}

TEST_F(DetachPolicy, GivesTheDataOfUsersUpThatTakesTooLong) {
  polite_outcomes_ = {Errc::kBusy};
  users_write_ = requests_failed_.get_future();
  force_flush_timeout_ns_ = base::kMillisecond;
  const auto detached = detach(true);
  ASSERT_TRUE(detached.ok());
  EXPECT_NE(detached.value().lost.find("answered nothing for 0.001 s"), std::string::npos);
  EXPECT_EQ(forced_, 1);
}

TEST_F(DetachPolicy, WaitsForTheDataOfUsersWhileTheDeviceAnswers) {
  polite_outcomes_ = {Errc::kBusy};
  force_flush_timeout_ns_ = base::kMillisecond;
  requests_left_ = 20;
  users_write_ = users_are_done_.get_future();
  const auto gone = detach(true);
  ASSERT_TRUE(gone.ok());
  EXPECT_EQ(requests_left_, 0u);
}

TEST_F(DetachPolicy, AsksNothingOfADeviceThatMustBeClean) {
  EXPECT_TRUE(detach(DetachMode::kIfClean).ok());
  polite_outcomes_ = {Errc::kIo};
  EXPECT_EQ(detach(DetachMode::kIfClean).code(), Errc::kIo);
  EXPECT_EQ(silent_, 2);
  EXPECT_EQ(polite_ + forced_ + cut_off_, 0);
}

TEST_F(DetachPolicy, GivesUpPagesThatTakeTooLongWithForce) {
  write_back_ = pages_failed_.get_future();
  force_flush_timeout_ns_ = base::kMillisecond;
  polite_outcomes_ = {Errc::kIo};
  EXPECT_NE(detach(true)->lost, "");
  EXPECT_GE(cut_off_, 1);
  EXPECT_EQ(forced_, 1);
}

TEST_F(DetachPolicy, CanBeRepeatedWhenForceHasFailed) {
  polite_outcomes_ = {Errc::kIo};
  forced_outcomes_ = {Errc::kNoMemory, Errc::kOk};
  EXPECT_EQ(detach(true).code(), Errc::kNoMemory);
  EXPECT_EQ(forced_, 1);
  EXPECT_TRUE(detach(true).ok());
  EXPECT_EQ(forced_, 2);
}

/// A server as detach_from() sees one.
class FakeServer {
 public:
  explicit FakeServer(base::Reactor& reactor) : reactor_(reactor) {}
  void stop() { alive_ = false; }
  bool alive() const { return alive_; }
  void expect_end(bool expected) { end_expected = expected; }
  KernelDeviceStatistics statistics() const { return {}; }
  base::Task<void> drained() {
    drained_called = true;
    co_await reactor_.sleep_ns(base::kMillisecond);
  }
  bool end_expected = false;
  bool drained_called = false;

 private:
  base::Reactor& reactor_;
  bool alive_ = true;
};

TEST(DetachFrom, ServesOnAfterARefusalAndGoesByForceOnceCutOff) {
  test::ReactorThread threads;
  FakeServer server(threads.reactor());
  Errc forced = Errc::kNoMemory;
  const auto detach = [&](bool force) {
    DetachSteps steps;
    steps.name = "braid-no-such-device";
    steps.mode = force ? DetachMode::kForce : DetachMode::kPolite;
    steps.force_flush_timeout_ns = 600 * base::kSecond;
    steps.remove_politely = [] { return outcome(Errc::kIo); };
    steps.remove_by_force = [&] { return outcome(forced); };
    return threads.await([&] { return detach_from(threads.reactor(), server, steps); });
  };
  EXPECT_EQ(detach(false).code(), Errc::kIo);
  EXPECT_TRUE(server.alive());
  EXPECT_FALSE(server.end_expected) << "an end after this is worth a warning";

  EXPECT_EQ(detach(true).code(), Errc::kNoMemory);
  EXPECT_FALSE(server.alive());
  EXPECT_FALSE(server.drained_called);
  // It has no session any more: repeated without force, it goes by force all the same.
  forced = Errc::kOk;
  EXPECT_TRUE(detach(false).ok());
  EXPECT_TRUE(server.drained_called);
}

}  // namespace
}  // namespace braid::bnbd
