// For tests of filters: a simulated process with a memory disk, which may hold requests and fail
// them, and filters on it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bnbd/backends.h"
#include "bnbd/filters.h"
#include "bnbd/test_block.h"

namespace braid::bnbd::test {

/// A memory disk whose requests a test may hold, or have fail.
class GatedDevice final : public BlockDevice {
 public:
  explicit GatedDevice(std::unique_ptr<BlockDevice> inner)
      : inner_(std::move(inner)), info_(inner_->info()) {}
  const BlockInfo& info() const override { return info_; }
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    return inner_->create_region(size_bytes);
  }
  std::span<std::byte> lendable_memory() override { return inner_->lendable_memory(); }
  BlockStatistics statistics() const override { return inner_->statistics(); }
  void submit(BlockRequest& request) override {
    ++submitted;
    if (holding) return held_.push_back(request);
    pass(request);
  }
  /// In the order of their submission, or the other way round.
  void release(base::Errc status = base::Errc::kOk, bool last_first = false) {
    holding = false;
    base::IntrusiveList<BlockRequest> now;
    while (BlockRequest* request = held_.pop_front())
      last_first ? now.push_front(*request) : now.push_back(*request);
    while (BlockRequest* request = now.pop_front()) pass(*request, status);
  }
  BlockInfo& change_info() { return info_; }
  bool holding = false;
  unsigned submitted = 0;
  base::Errc fails = base::Errc::kOk;

 private:
  void pass(BlockRequest& request, base::Errc status = base::Errc::kOk) {
    if (status == base::Errc::kOk) status = fails;
    if (status != base::Errc::kOk) return request.done(request, status);
    inner_->submit(request);
  }
  std::unique_ptr<BlockDevice> inner_;
  BlockInfo info_;
  base::IntrusiveList<BlockRequest> held_;
};

class FilterTest : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;
  static constexpr uint64_t kMs = base::kMillisecond;

  explicit FilterTest(uint64_t size_bytes = 4 * kMiB) {
    MemoryDeviceOptions options;
    options.size_bytes = size_bytes;
    disk = std::make_unique<GatedDevice>(
        std::move(create_memory_device(process.host(), options)).value());
  }
  static std::vector<FilterSpec> parse(const std::vector<std::string>& texts) {
    std::vector<FilterSpec> specs;
    for (const std::string& text : texts) {
      auto spec = parse_filter(text);
      EXPECT_TRUE(spec.ok()) << spec.error().message();
      specs.push_back(*spec);
    }
    return specs;
  }
  base::Status try_put_on(const std::vector<std::string>& texts) {
    auto made = process.await(FilterStack::create(process.reactor(), *disk, parse(texts), "disk"));
    if (!made.ok()) return made.error();
    filters = std::move(*made);
    return base::ok_status();
  }
  void put_on(const std::vector<std::string>& texts) {
    const base::Status put = try_put_on(texts);
    ASSERT_TRUE(put.ok()) << put.error().message();
  }
  base::Errc run(Io& io) { return process.run(filters->top(), io); }
  base::Errc run(Io&& io) { return process.run(filters->top(), io); }
  base::Errc write(uint64_t offset, uint64_t length, int fill) {
    return run(Io(BlockOp::kWrite, offset, length, fill));
  }
  base::Errc read(uint64_t offset, uint64_t length) {
    return run(Io(BlockOp::kRead, offset, length));
  }
  /// How long a request takes.
  uint64_t time_of(Io&& io) {
    const uint64_t begin_ns = world.now_ns();
    EXPECT_EQ(run(io), base::Errc::kOk);
    return world.now_ns() - begin_ns;
  }
  void submit(Io& io) { process.submit(filters->top(), io); }
  /// Runs on the reactor, until it has run.
  void on_reactor(const std::function<void()>& function) {
    bool ran = false;
    process.on_reactor([&] {
      function();
      ran = true;
    });
    ASSERT_TRUE(world.run_until([&] { return ran; }, base::kSecond));
  }
  void settle() { world.run_for(kMs); }
  FilterCounters counters(size_t filter = 0) { return filters->filters().at(filter)->counters(); }

  base::sim::SimWorld world{calm()};
  Process process{world.add_machine("host")};
  std::unique_ptr<GatedDevice> disk;
  std::unique_ptr<FilterStack> filters;  // goes before the disk
};

}  // namespace braid::bnbd::test
