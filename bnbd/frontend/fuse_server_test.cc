// FuseServer, with a test in the kernel's place.
#include "bnbd/frontend/fuse_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "bnbd/frontend/test_fuse_kernel.h"
#include "bnbd/frontend/test_kernel_device.h"

namespace braid::bnbd {
namespace {

class Fuse : public testing::Test {
 protected:
  void start(unsigned slots) { start(slots, slots); }
  void start(unsigned first, unsigned most) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    kernel_ = std::make_unique<test::FuseKernelEnd>(UniqueFd(ends[0]));
    threads_.on_reactor([&, socket = ends[1]] {
      MemoryDeviceOptions options;
      options.size_bytes = 1 << 20;
      device_ = std::make_unique<test::GateDevice>(
          std::move(create_memory_device(threads_.host(), options)).value());
      auto pool = SlotPool<FuseServer::Slot>::create(*device_, first, most,
                                                     FuseServer::max_read_bytes(device_->info()));
      ASSERT_TRUE(pool.ok()) << pool.error().message();
      auto server = FuseServer::create(threads_.reactor(), *device_, "disk",
                                       std::move(pool).value(), UniqueFd(socket));
      ASSERT_TRUE(server.ok()) << server.error().message();
      server_ = std::move(server).value();
    });
    kernel_->send_init();
    EXPECT_TRUE(answered());
  }
  void TearDown() override {
    threads_.on_reactor([&] {
      server_.reset();
      device_.reset();
    });
  }
  bool answered(int32_t error = 0) {
    bool was = false;
    return threads_.wait_until([&] { return was = was || kernel_->answer_is(error); });
  }
  void send_flush() { kernel_->send(FUSE_FSYNC, fuse_fsync_in{}, 0); }

  test::ReactorThread threads_;
  std::unique_ptr<test::FuseKernelEnd> kernel_;
  std::unique_ptr<test::GateDevice> device_;
  FuseServer::Ptr server_;
};

TEST_F(Fuse, WhoFindsNoSlotGetsOneOfThoseThatAreMadeThen) {
  start(/*first=*/2, /*most=*/6);
  threads_.on_reactor([&] { device_->hold(); });
  for (uint64_t i = 0; i < 7; ++i) kernel_->send_write(i * 4096, 4096);
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 6; }));
  threads_.on_reactor([&] { EXPECT_NE(device_->region_maker(), std::this_thread::get_id()); });
  threads_.on_reactor([&] { device_->release(); });
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(answered());
}

TEST_F(Fuse, AServerIsDrainedWhenWhatIsBeingMadeForItIsDone) {
  start(/*first=*/1, /*most=*/2);
  std::atomic<bool> asked = false;
  std::promise<void> may_go_on;
  threads_.on_reactor([&] {
    device_->hold();
    device_->before_region = [&] {
      asked = true;
      may_go_on.get_future().wait();
    };
  });
  for (uint64_t i = 0; i < 2; ++i) kernel_->send_write(i * 4096, 4096);
  // A worker makes a slot for the second.
  ASSERT_TRUE(threads_.wait_until([&] { return asked.load(); }));
  bool drained = false;
  threads_.on_reactor([&] {
    server_->stop();
    device_->release();
    threads_.reactor().spawn([](FuseServer& server, bool& done) -> base::Task<void> {
      co_await server.drained();
      done = true;
    }(*server_, drained));
  });
  ASSERT_TRUE(threads_.wait_until([&] { return server_->statistics().in_flight == 0; }));
  threads_.on_reactor([&] { EXPECT_FALSE(drained); });
  may_go_on.set_value();
  EXPECT_TRUE(threads_.wait_until([&] { return drained; }));
}

TEST_F(Fuse, AFlushThatWaitedForASlotIsOfTheMomentAtWhichItCame) {
  start(/*slots=*/2);
  threads_.on_reactor([&] { device_->hold(); });
  for (uint64_t i = 0; i < 2; ++i) kernel_->send_write(i * 4096, 4096);
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 2; }));
  send_flush();
  threads_.on_reactor([&] { device_->release(); });
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(answered());
  EXPECT_EQ(device_->known(), 0U) << "its user had heard of none";
  for (int i = 0; i < 1000 && device_->known() < 2; ++i) {
    send_flush();
    EXPECT_TRUE(answered());
  }
  EXPECT_GE(device_->known(), 2U);
}

/// Else the next flush would be of a moment before that, and fail, too, for nothing.
TEST_F(Fuse, WhoAsksAfterAFlushHasFailedKnowsOfIt) {
  start(/*slots=*/2);
  threads_.on_reactor([&] {
    device_->hold();
    device_->fail_with(base::Errc::kIo);
  });
  send_flush();
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 1; }));
  threads_.on_reactor([&] {
    device_->release();
    device_->fail_with(base::Errc::kOk);
    send_flush();  // before the server's next turn
  });
  EXPECT_TRUE(answered(-EIO));
  EXPECT_TRUE(answered());
  EXPECT_EQ(device_->failures_known(), 1U);
}

/// How many more requests a device was given in one turn, at most.
class TurnsWatched : public base::Poller {
 public:
  explicit TurnsWatched(const test::GateDevice& device) : device_(device) {}
  bool poll() override {
    const int now = device_.held_count();
    most_ = std::max(most_, now - std::exchange(before_, now));
    return false;
  }
  bool arm() override { return true; }
  int most() const { return most_; }

 private:
  const test::GateDevice& device_;
  int before_ = 0, most_ = 0;
};

/// Those before them are to end meanwhile: all at once they would push each other from the caches.
TEST_F(Fuse, ATurnTakesOnlySoMuchOfLargeWrites) {
  constexpr int kWrites = 12;
  constexpr uint32_t kEachBytes = 16 << 10;
  start(kWrites);
  std::optional<TurnsWatched> turns;
  threads_.on_reactor([&] {
    device_->hold();
    turns.emplace(*device_);
    threads_.reactor().add(*turns);
    for (int i = 0; i < kWrites; ++i)
      kernel_->send_write(static_cast<uint64_t>(i) * kEachBytes, kEachBytes);
  });
  const bool all = threads_.wait_until([&] { return device_->held_count() == kWrites; });
  threads_.on_reactor([&] {
    threads_.reactor().remove(*turns);
    device_->release();
  });
  ASSERT_TRUE(all);
  for (int i = 0; i < kWrites; ++i) EXPECT_TRUE(answered());
  EXPECT_LE(turns->most(), 8) << "64 KiB when they come, and as much in the rest of the turn";
}

}  // namespace
}  // namespace braid::bnbd
