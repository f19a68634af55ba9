#include "base/linux/executor.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <future>

#include "base/test_lines.h"

namespace braid::base {
namespace {

/// While there is one, the system gives this process no thread: their stacks are too large.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, size_t{1} << 60);
    EXPECT_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    EXPECT_EQ(::pthread_setattr_default_np(&before_), 0);
    ::pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

class ExecutorTest : public testing::Test {
 protected:
  std::shared_ptr<TestLines> lines_ = std::make_shared<TestLines>();
  Logger log_{lines_, "", LogLevel::kInfo};
};

TEST_F(ExecutorTest, WithoutAnyThreadWorkWaitsForOne) {
  Executor executor(4, log_);
  std::promise<void> first, second;
  {
    const NoThreads none;
    executor.execute([&] { first.set_value(); });
  }
  EXPECT_EQ(lines_->with("wait for the 0 threads that there are"), 1u);
  executor.execute([&] { second.set_value(); });
  first.get_future().wait();
  second.get_future().wait();
}

TEST_F(ExecutorTest, WhatGetsNoThreadWaitsForThoseThereAre) {
  Executor executor(4, log_);
  std::promise<void> let_go, first, second, third;
  executor.execute([&] {
    let_go.get_future().wait();
    first.set_value();
  });
  {
    const NoThreads none;
    executor.execute([&] { second.set_value(); });
    executor.execute([&] { third.set_value(); });
  }
  EXPECT_EQ(lines_->with("wait for the 1 threads that there are"), 1u) << "once, not each time";
  let_go.set_value();
  for (std::promise<void>* each : {&first, &second, &third}) each->get_future().wait();
}

TEST_F(ExecutorTest, AHungOneHoldsUpNoOther) {
  Executor executor(3, log_);
  std::promise<void> let_go, other;
  auto gate = let_go.get_future().share();
  for (int i = 0; i < 2; ++i) executor.execute([gate] { gate.wait(); });
  executor.execute([&] { other.set_value(); });
  other.get_future().wait();
  let_go.set_value();
}

}  // namespace
}  // namespace braid::base
