#include "bench/micro/filter_rows.h"

#include <xxhash.h>

#include "bench/braid_side.h"
#include "bench/micro/loop_row.h"
#include "bench/workload.h"
#include "bnbd/backends.h"
#include "bnbd/filters.h"

namespace braid::bench {
namespace {

constexpr uint64_t kDeviceBytes = 64 << 20;

/// A null device and a request that reads from it.
class Device {
 public:
  Device()
      : device_(must(
            bnbd::create_null_device(*side_.host, {.name = "micro", .size_bytes = kDeviceBytes}))),
        buffer_(kBlockBytes) {
    request_.length_bytes = kBlockBytes;
    request_.buffer = {.address = buffer_.data()};
    request_.context = this;
    request_.done = [](bnbd::BlockRequest& done, base::Errc status) {
      must(status, "a request");
      ++static_cast<Device*>(done.context)->done_;
    };
  }

  base::Reactor& reactor() { return *side_.reactor; }
  bnbd::BlockDevice& device() { return *device_; }
  std::span<const std::byte> buffer() const { return buffer_; }

  /// One request, to its end.
  void run(bnbd::BlockDevice& device, bnbd::BlockOp op = bnbd::BlockOp::kRead) {
    request_.op = op;
    request_.offset_bytes = (request_.offset_bytes + kBlockBytes) % kDeviceBytes;
    const uint64_t before = done_;
    device.submit(request_);
    while (done_ == before) side_.reactor->turn();
  }

 private:
  const BraidSide side_;
  const std::unique_ptr<bnbd::BlockDevice> device_;
  std::vector<std::byte> buffer_;
  bnbd::BlockRequest request_;
  uint64_t done_ = 0;
};

void alone(benchmark::State& state) {
  Device device;
  for (auto _ : state) device.run(device.device());
}

void alone_and_hashed(benchmark::State& state) {
  Device device;
  for (auto _ : state) {
    device.run(device.device());
    benchmark::DoNotOptimize(XXH3_64bits(device.buffer().data(), device.buffer().size()));
  }
}

void filtered(benchmark::State& state, const char* filter) {
  Device device;
  const auto stack = must(device.reactor().run_until_done(bnbd::FilterStack::create(
      device.reactor(), device.device(), {must(bnbd::parse_filter(filter))}, "micro")));
  bnbd::BlockDevice& top = stack->top();
  // What has been read once is known to the checksums.
  for (uint64_t at = 0; at < kDeviceBytes; at += kBlockBytes) device.run(top);
  for (auto _ : state) device.run(top);
  device.reactor().run_until_done(stack->drained());
}

}  // namespace

void add_filter_rows(std::vector<RowPlan>& plans) {
  const Loop bare{"the device alone", &alone};
  const auto add = [&](const char* filter, const Loop& floor) {
    add_loop_row(
        plans, std::string("filter, ") + filter,
        {"a null device behind it", [filter](benchmark::State& state) { filtered(state, filter); }},
        floor);
  };
  // Which lets reads pass, and which holds each: 1 us of that is the delay itself.
  add("delay:write=1ms", bare);
  add("delay:read=1us", bare);
  add("error:read,every=1000000000", bare);
  add("rate:bytes=100T", bare);
  add("checksum:learn", {"the device alone, and the block's hash", &alone_and_hashed});
}

}  // namespace braid::bench
