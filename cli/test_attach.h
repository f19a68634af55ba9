// A stand-in for the kernel that uses a device while it is mapped, for tests that count.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "base/reactor.h"
#include "bnbd/kernel_device.h"
#include "cli/test_node.h"

namespace braid::cli {

inline constexpr uint64_t kReads = 20, kWrites = 5;
inline constexpr uint32_t kReadBytes = 4096, kWriteBytes = 16384;

struct Ended {
  explicit Ended(base::Reactor& reactor) : changed(reactor) {}
  base::Signal changed;
  std::optional<base::Errc> status;
};

inline base::Task<base::Errc> transfer(base::Reactor& home, bnbd::BlockDevice& device,
                                       const bnbd::Region& region, bnbd::BlockOp op,
                                       uint32_t bytes) {
  Ended ended(home);
  bnbd::BlockRequest request;
  request.op = op;
  request.length_bytes = bytes;
  request.buffer = {&region, region.data()};
  request.context = &ended;
  request.done = [](bnbd::BlockRequest& done, base::Errc how) {
    auto& waits = *static_cast<Ended*>(done.context);
    waits.status = how;
    waits.changed.notify_all();
  };
  device.submit(request);
  while (!ended.status) co_await ended.changed.wait();
  co_return *ended.status;
}

/// A kernel that has used the device by the time it has it.
inline base::Task<base::Result<std::unique_ptr<bnbd::KernelDevice>>> attach_and_use(
    base::Reactor& home, bnbd::BlockDevice& device, bnbd::KernelDeviceOptions) {
  BRAID_CO_TRY(const auto region, device.create_region(kWriteBytes));
  for (uint64_t i = 0; i < kReads + kWrites; ++i) {
    const bool read = i < kReads;
    const base::Errc how = co_await transfer(home, device, *region,
                                             read ? bnbd::BlockOp::kRead : bnbd::BlockOp::kWrite,
                                             read ? kReadBytes : kWriteBytes);
    EXPECT_EQ(how, base::Errc::kOk);
  }
  co_return std::unique_ptr<bnbd::KernelDevice>(std::make_unique<IdleKernelDevice>());
}

}  // namespace braid::cli
