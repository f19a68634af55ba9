// Who waits for a peer's copy looks at its counter, and asks the system seldom whether that peer
// lives.
#include "vhca/soft/inhost/fence.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <span>

#include "base/test_host.h"

namespace braid::vhca::soft::inhost {
namespace {

class FencedMemory final : public base::Segment {
 public:
  explicit FencedMemory(std::byte* data) : data_(data) {}
  std::byte* data() const override { return data_; }
  size_t size() const override { return sizeof(SegmentHead); }
  const base::Handle& handle() const override { std::abort(); }

 private:
  std::byte* const data_;
};

/// Of the peer: what is known of its life.
struct Life {
  bool alive = true;
  unsigned questions = 0;
};
class Process final : public base::PeerProcess {
 public:
  explicit Process(Life& life) : life_(life) {}
  bool alive() const override {
    ++life_.questions;
    return life_.alive;
  }
  base::Errc write(uint64_t, std::span<const std::span<const std::byte>>) override { std::abort(); }
  base::Errc read(uint64_t, std::span<const std::span<std::byte>>) override { std::abort(); }

 private:
  Life& life_;
};

class CopyFences : public testing::Test {
 protected:
  static constexpr uint32_t kKey = 0x700;

  /// Of a deregistration while the peer is in the middle of a copy.
  CopyFences() {
    table.add(std::make_shared<PeerCopies>(
        std::make_unique<FencedMemory>(reinterpret_cast<std::byte*>(&head)),
        std::make_shared<PeerDevice>(host, base::PeerIdentity{.pid = 123}, DeviceId{},
                                     std::make_unique<FencedMemory>(nullptr), 1,
                                     std::make_unique<Process>(life))));
    head.activity.key.store(kKey, std::memory_order_relaxed);
    count(1);
    fence = fence_copies(table, kKey, [this] { host.heavy_fence(); });
  }
  void count(uint64_t copies) { head.activity.active.store(copies, std::memory_order_release); }

  base::TestHost host;
  SegmentHead head{};
  Life life;
  CopyTable table;
  std::unique_ptr<PeerFence> fence;
};

TEST_F(CopyFences, a_copy_that_goes_on_is_looked_at_often_and_its_process_asked_for_seldom) {
  ASSERT_NE(fence, nullptr);
  EXPECT_FALSE(passes_soon(*fence, kLooksOfAQuestion - 1));
  EXPECT_EQ(life.questions, 0U);
  EXPECT_FALSE(passes_soon(*fence, 9 * kLooksOfAQuestion + 1));
  EXPECT_EQ(life.questions, 10U);
}

TEST_F(CopyFences, a_copy_that_ended_is_seen_at_the_next_look_and_nobody_asked) {
  ASSERT_NE(fence, nullptr);
  EXPECT_FALSE(fence->passed());
  count(2);
  EXPECT_TRUE(fence->passed());
  EXPECT_EQ(life.questions, 0U);
}

TEST_F(CopyFences, the_looks_of_a_deregistration_find_out_that_the_peer_is_dead) {
  ASSERT_NE(fence, nullptr);
  life.alive = false;
  constexpr unsigned kLooksOfDeregistration = 100;
  EXPECT_TRUE(passes_soon(*fence, kLooksOfDeregistration));
  EXPECT_EQ(life.questions, 1U);
}

TEST_F(CopyFences, single_looks_far_apart_find_out_that_the_peer_is_dead) {
  ASSERT_NE(fence, nullptr);
  EXPECT_FALSE(passes_soon(*fence, 100));
  life.alive = false;
  unsigned looks = 1;
  while (looks <= kLooksOfAQuestion && !fence->passed()) ++looks;
  EXPECT_LE(looks, kLooksOfAQuestion);
}

}  // namespace
}  // namespace braid::vhca::soft::inhost
