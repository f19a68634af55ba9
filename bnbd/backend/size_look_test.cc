// A look at a file's size whose answer is late, on real workers: one of them is made to wait.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <vector>

#include "base/await.h"
#include "base/linux_host.h"
#include "bnbd/backend/file_device.h"

namespace braid::bnbd {
namespace {

constexpr uint64_t kLookedAtSize = 8 << 20;

/// Only a size; who asks for it gets what it was, when the test lets it.
class SlowToTell final : public base::File {
 public:
  const Info& info() const override { return info_; }
  base::Result<uint64_t> current_size() const override {
    const uint64_t size_bytes = size_bytes_;
    asked.count_down();
    tell.wait();
    return size_bytes;
  }
  base::Status set_size(uint64_t size_bytes) override {
    size_bytes_ = size_bytes;
    return {};
  }
  void adopt_size(uint64_t size_bytes) override { info_.size_bytes = size_bytes; }

  mutable std::latch asked{1};
  mutable std::latch tell{1};

 private:
  Info info_{.size_bytes = kLookedAtSize};
  std::atomic<uint64_t> size_bytes_ = kLookedAtSize;
};

base::Task<bool> turn(base::Reactor& reactor) {
  co_await reactor.sleep_ns(0);
  co_return true;
}

base::Task<void> look(BlockDevice& device, bool& changed, bool& done) {
  changed = (co_await device.refresh_size()).value();
  done = true;
}

TEST(SizeLook, WhatWasReadBeforeAResizeIsNotBelievedBehindIt) {
  base::LinuxHostOptions quiet;
  quiet.log_sink = base::make_null_sink();
  const auto host = std::move(base::create_linux_host(quiet)).value();
  const auto reactor = std::move(base::Reactor::create(*host, {})).value();
  FileDevice::Options options;
  options.info.size_bytes = kLookedAtSize;
  auto scratch = host->create_segment(FileDevice::scratch_bytes(options.info), "scratch").value();
  auto file = std::make_unique<SlowToTell>();
  SlowToTell& slow = *file;
  FileDevice device(*reactor, std::move(file), std::move(scratch), options);
  bool changed = false, done = false;
  reactor->spawn(look(device, changed, done));
  reactor->run_until_done(turn(*reactor));
  slow.asked.wait();
  ASSERT_TRUE(reactor->run_until_done(device.resize(kLookedAtSize / 2)).ok());
  EXPECT_FALSE(done);
  slow.tell.count_down();
  // NOLINTNEXTLINE(bugprone-infinite-loop): the look sets it
  while (!done) reactor->run_until_done(turn(*reactor));
  EXPECT_FALSE(changed) << "nobody but us has changed it";
  EXPECT_EQ(device.info().size_bytes, kLookedAtSize / 2)
      << "a write behind it would make the file longer";
}

}  // namespace
}  // namespace braid::bnbd
