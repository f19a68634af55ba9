// Secure erase, which takes a worker of all: of each device one at a time.
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/linux_host.h"
#include "bnbd/backend/file_device.h"
#include "bnbd/test_block.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::Io;

/// A disk whose erasures last until they are let go.
class SlowEraser : public base::File {
 public:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int begun = 0, running = 0, most = 0, allowed = 0;
  };
  explicit SlowEraser(State& state) : state_(state) {
    info_.size_bytes = 1 << 20;
    info_.block_device = info_.can_secure_erase = true;
  }
  const Info& info() const override { return info_; }
  base::Status secure_erase(uint64_t offset_bytes, uint64_t) override {
    std::unique_lock lock(state_.mutex);
    const int number = ++state_.begun;
    state_.most = std::max(state_.most, ++state_.running);
    state_.changed.notify_all();
    state_.changed.wait(lock, [&] { return state_.allowed >= number; });
    --state_.running;
    if (offset_bytes == 0) return base::make_error(Errc::kIo, "a bad place");
    return {};
  }

 private:
  State& state_;
  Info info_;
};

TEST(Erase, of_each_device_one_takes_a_worker_and_the_others_wait) {
  base::LinuxHostOptions quiet;
  quiet.log_sink = base::make_null_sink();
  auto host = std::move(base::create_linux_host(quiet)).value();
  auto reactor = std::move(base::Reactor::create(*host, {})).value();
  SlowEraser::State state;
  FileDevice::Options options;
  options.info.size_bytes = 1 << 20;
  options.info.max_io_bytes = 4096;
  options.info.max_secure_erase_bytes = 1 << 20;
  options.info.queue_depth = 16;
  auto scratch =
      std::move(host->create_segment(FileDevice::scratch_bytes(options.info), "test")).value();
  FileDevice device(*reactor, std::make_unique<SlowEraser>(state), std::move(scratch), options);

  constexpr int kErasures = 20;  // more than the queue has
  std::vector<std::unique_ptr<Io>> ios;
  for (int i = 0; i < kErasures; ++i) {
    ios.push_back(std::make_unique<Io>(BlockOp::kSecureErase, uint64_t{4096} * i, 4096));
    device.submit(ios.back()->request);
  }
  for (int i = 1; i <= kErasures; ++i) {
    {
      std::unique_lock lock(state.mutex);
      state.changed.wait(lock, [&] { return state.begun >= i; });
      state.allowed = i;
      state.changed.notify_all();
    }
    Io& io = *ios[static_cast<size_t>(i) - 1];
    reactor->run_until_done([](base::Reactor& home, Io& each) -> base::Task<void> {
      while (!each.status.has_value()) co_await home.sleep_ns(0);
    }(*reactor, io));
    EXPECT_EQ(*io.status, i == 1 ? Errc::kIo : Errc::kOk) << i;
  }
  EXPECT_EQ(state.most, 1);
}

}  // namespace
}  // namespace braid::bnbd
