// Slots that come as they are needed: where memory is short, where the pool goes meanwhile.
#include "bnbd/frontend/slot_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "bnbd/backends.h"
#include "bnbd/filter/test_filters.h"
#include "bnbd/frontend/test_kernel_device.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using Slots = SlotPool<RequestSlot>;

constexpr uint32_t kPayloadBytes = 16 << 10;

/// A disk that asks a test before it makes memory.
class AskingDevice final : public BlockDevice {
 public:
  explicit AskingDevice(std::unique_ptr<BlockDevice> inner) : inner_(std::move(inner)) {}
  const BlockInfo& info() const override { return inner_->info(); }
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    ++asked;
    if (ask) BRAID_CHECK(ask());
    return inner_->create_region(size_bytes);
  }
  BlockStatistics statistics() const override { return inner_->statistics(); }
  void submit(BlockRequest& request) override { inner_->submit(request); }

  std::function<base::Status()> ask;  // on whatever thread asks for memory
  std::atomic<int> asked = 0;

 private:
  const std::unique_ptr<BlockDevice> inner_;
};

std::unique_ptr<AskingDevice> make_device(base::Host& host) {
  MemoryDeviceOptions options;
  options.size_bytes = 1 << 20;
  return std::make_unique<AskingDevice>(std::move(create_memory_device(host, options)).value());
}

class GrowingSlots : public test::FilterTest {
 protected:
  void SetUp() override {
    device_ = make_device(process.host());
    pool_ = std::move(Slots::create(*device_, 2, 7, kPayloadBytes)).value();
    pool_->set_owner([this](RequestSlot& slot) { prepared_.insert(&slot); }, [this] { ++grown_; });
  }
  void TearDown() override {
    on_reactor([&] { pool_.reset(); });
  }
  void grow(int times = 1) {
    on_reactor([&] {
      for (int i = 0; i < times; ++i) pool_->grow(process.reactor());
    });
    settle();
  }

  std::unique_ptr<AskingDevice> device_;
  std::unique_ptr<Slots> pool_;
  std::set<RequestSlot*> prepared_;
  int grown_ = 0;
};

TEST_F(GrowingSlots, DoubleUntilThereAreTheMostAndEachIsPreparedAndHasMemoryOfItsOwn) {
  for (const unsigned size : {2U, 4U, 7U, 7U}) {
    EXPECT_EQ(pool_->size(), size);
    grow();
  }
  EXPECT_EQ(device_->asked, 3);
  EXPECT_EQ(grown_, 2);
  EXPECT_EQ(prepared_.size(), 7U);
  std::set<std::byte*> payloads;
  while (RequestSlot* const slot = pool_->acquire()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slot->payload) % kSlotHeadBytes, 0U);
    EXPECT_GE(slot->payload - kSlotHeadBytes, slot->region->data());
    EXPECT_LE(slot->payload + kPayloadBytes + kSlotHeadBytes,
              slot->region->data() + slot->region->size());
    payloads.insert(slot->payload);
  }
  ASSERT_EQ(payloads.size(), 7U);
  for (auto at = payloads.begin(), next = std::next(at); next != payloads.end(); ++at, ++next) {
    EXPECT_GE(*next - *at, kPayloadBytes + kSlotHeadBytes);
  }
  EXPECT_EQ(pool_->in_use(), 7U);
}

TEST_F(GrowingSlots, AskOnceAtATime) {
  grow(/*times=*/5);
  EXPECT_FALSE(pool_->growing());
  EXPECT_EQ(device_->asked, 2);
  EXPECT_EQ(pool_->size(), 4U);
}

TEST_F(GrowingSlots, WithoutMemoryThereAreThoseThatThereAreAndItIsTriedAgainAfterAWhile) {
  device_->ask = [] { return base::make_error(Errc::kNoMemory, "no memory in this test"); };
  RequestSlot* const slot = pool_->acquire();
  for (int i = 0; i < 5; ++i) grow();
  EXPECT_EQ(device_->asked, 2) << "asked again before the time";
  EXPECT_EQ(grown_, 1) << "who waits for the end of it must hear";
  EXPECT_EQ(pool_->size(), 2U);
  pool_->release(*slot);
  EXPECT_NE(pool_->acquire(), nullptr);

  device_->ask = nullptr;
  world.run_for(Slots::kRetryNs);
  grow();
  EXPECT_EQ(pool_->size(), 4U);
}

TEST_F(GrowingSlots, AreMadeForOnePoolAtATime) {
  auto other = std::move(Slots::create(*device_, 2, 7, kPayloadBytes)).value();
  other->set_owner([](RequestSlot&) {}, [] {});
  on_reactor([&] {
    pool_->grow(process.reactor());
    other->grow(process.reactor());
    EXPECT_TRUE(pool_->growing());
    EXPECT_FALSE(other->growing()) << "a second worker would wait for memory";
  });
  settle();
  on_reactor([&] { other->grow(process.reactor()); });
  settle();
  EXPECT_EQ(other->size(), 4U);
  on_reactor([&] { other.reset(); });
}

TEST_F(GrowingSlots, ThatWereRefusedHaveATurnInWhichToAskAgain) {
  auto other = std::move(Slots::create(*device_, 2, 7, kPayloadBytes)).value();
  other->set_owner([](RequestSlot&) {}, [] {});
  on_reactor([&] {
    pool_->grow(process.reactor());
    other->grow(process.reactor());
  });
  const uint64_t turns = world.counters().turns;
  world.run_for(Slots::kAgainNs - 2 * kMs);  // nothing happens but what the pool has made
  const uint64_t made = world.counters().turns;
  world.run_for(3 * kMs);
  EXPECT_GT(world.counters().turns, made) << turns;
  on_reactor([&] { other.reset(); });
}

/// The same on real threads, where a pool goes while a worker makes its next part.
TEST(GrowingSlotsThreads, APoolThatGoesWaitsForThePartThatIsJustBeingMade) {
  test::ReactorThread threads;
  std::unique_ptr<AskingDevice> device;
  std::unique_ptr<Slots> pool;
  std::promise<void> asked;
  std::promise<void> going;
  threads.on_reactor([&] {
    device = make_device(threads.host());
    pool = std::move(Slots::create(*device, 2, 8, kPayloadBytes)).value();
    pool->set_owner([](RequestSlot&) {}, [] { ADD_FAILURE() << "its pool has gone"; });
    device->ask = [&] {
      asked.set_value();
      going.get_future().wait();
      return base::ok_status();
    };
    pool->grow(threads.reactor());
  });
  asked.get_future().wait();
  threads.on_reactor([&] {
    going.set_value();
    pool.reset();
    device.reset();  // a worker that still used it would be seen by the sanitizers
  });
  // What the worker tells the reactor then finds nobody.
  threads.on_reactor([] {});
}

TEST(GrowingSlotsThreads, PagesOfWhatHasComeAreThere) {
  constexpr uint32_t kLargeBytes = 1 << 20;  // in a segment that is not filled when it is made
  test::ReactorThread threads;
  std::unique_ptr<AskingDevice> device;
  std::unique_ptr<Slots> pool;
  threads.on_reactor([&] {
    device = make_device(threads.host());
    pool = std::move(Slots::create(*device, 1, 4, kLargeBytes)).value();
    pool->set_owner([](RequestSlot&) {}, [] {});
    pool->grow(threads.reactor());
  });
  ASSERT_TRUE(threads.wait_until([&] { return pool->size() == 2; }));
  threads.on_reactor([&] {
    pool->for_each([](RequestSlot& slot) {
      unsigned char there[kLargeBytes / kSlotHeadBytes] = {};
      ASSERT_EQ(::mincore(slot.payload, kLargeBytes, there), 0);
      for (const unsigned char page : there) EXPECT_EQ(page & 1, 1);
    });
    pool.reset();
    device.reset();
  });
}

}  // namespace
}  // namespace braid::bnbd
