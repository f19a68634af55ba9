// Whoever deregisters memory knows which QPs the program's threads are inside of.
#include "vhca/soft/own_threads.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>

namespace braid::vhca::soft {
namespace {

class OwnThreadsTest : public testing::Test {
 protected:
  const std::shared_ptr<OwnThreads> threads = std::make_shared<OwnThreads>();
  SpinLock one{true}, other{true};
};

TEST_F(OwnThreadsTest, qps_that_nobody_is_inside_of_are_not_waited_for) {
  EXPECT_EQ(threads->fence(), nullptr) << "no QP";
  threads->add(one);
  threads->add(other);
  EXPECT_EQ(threads->fence(), nullptr);
  EXPECT_TRUE(one.try_lock()) << "looking leaves the lock free";
}

TEST_F(OwnThreadsTest, the_fence_passes_when_all_have_been_seen_to_leave) {
  threads->add(one);
  threads->add(other);
  one.lock();
  other.lock();
  const std::unique_ptr<PeerFence> fence = threads->fence();
  ASSERT_NE(fence, nullptr);
  EXPECT_FALSE(fence->passed());
  EXPECT_EQ(fence->waits_for(), "a thread of this process");
  one.unlock();
  EXPECT_FALSE(fence->passed());
  const std::lock_guard again(one);  // who comes later finds the key gone
  other.unlock();
  EXPECT_TRUE(fence->passed());
}

TEST_F(OwnThreadsTest, a_qp_that_has_gone_is_not_looked_at) {
  auto gone = std::make_unique<SpinLock>(true);
  const uint64_t id = threads->add(*gone);
  threads->add(one);
  gone->lock();
  one.lock();
  const std::unique_ptr<PeerFence> fence = threads->fence();
  ASSERT_NE(fence, nullptr);
  threads->remove(id);
  gone.reset();
  EXPECT_FALSE(fence->passed()) << "the other is still there";
  one.unlock();
  EXPECT_TRUE(fence->passed());
}

}  // namespace
}  // namespace braid::vhca::soft
