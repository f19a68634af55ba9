// The memory disk: a Segment, reads lent from it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/pages.h"
#include "bnbd/backend/local_region.h"
#include "bnbd/backends.h"

namespace braid::bnbd {

using base::Errc;
using base::make_error;
using base::Result;

namespace {

constexpr uint64_t kPageBytes = 4096;
// A range is cleared inside submit(), and nothing else of the reactor runs meanwhile, heartbeats
// neither: it may take no longer than the longest write. Memory that was never touched before takes
// a page fault for each page, 0.9 ms for a MiB (measured).
constexpr uint64_t kRangeMax = 1 << 20;

class MemoryDevice : public BlockDevice {
 public:
  MemoryDevice(base::Host& host, std::unique_ptr<base::Segment> store, BlockInfo info,
               bool give_back)
      : host_(host), store_(std::move(store)), info_(std::move(info)), give_back_(give_back) {}

  const BlockInfo& info() const override { return info_; }
  std::span<std::byte> lendable_memory() override { return {store_->data(), store_->size()}; }
  std::span<std::byte> content_memory() override { return {store_->data(), store_->size()}; }
  BlockStatistics statistics() const override { return statistics_; }
  Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    return LocalRegion::create(host_, size_bytes);
  }

  void submit(BlockRequest& request) override {
    request.lent = nullptr;
    const Errc status = check(info_, request);
    if (status == Errc::kOk) execute(request);
    statistics_.count(request, status);
    request.done(request, status);
  }

 private:
  void execute(BlockRequest& request) {
    std::byte* const place = store_->data() + request.offset_bytes;
    switch (request.op) {
      case BlockOp::kRead:
        if (request.may_lend) {
          request.lent = place;
        } else {
          std::memcpy(request.buffer.address, place, request.length_bytes);
        }
        break;
      case BlockOp::kWrite:
        if (request.buffer.address != place) {
          std::memcpy(place, request.buffer.address, request.length_bytes);
        }
        break;
      case BlockOp::kFlush:
        break;
      case BlockOp::kDiscard:
        clear(request.offset_bytes, request.length_bytes, give_back_);
        break;
      case BlockOp::kWriteZeroes:
        clear(request.offset_bytes, request.length_bytes, give_back_ && !request.no_unmap);
        break;
      case BlockOp::kSecureErase:
        break;  // refused by check()
    }
  }

  /// Makes a range zero; gives the whole pages in it back if it may.
  void clear(uint64_t offset, uint64_t length, bool give_back) {
    const uint64_t end = offset + length;
    const uint64_t first = std::min(end, (offset + kPageBytes - 1) / kPageBytes * kPageBytes);
    const uint64_t last = std::max(first, end / kPageBytes * kPageBytes);
    if (!give_back || first == last) {
      std::memset(store_->data() + offset, 0, length);
      return;
    }
    std::memset(store_->data() + offset, 0, first - offset);
    store_->discard(first, last - first);
    std::memset(store_->data() + last, 0, end - last);
  }

  base::Host& host_;
  const std::unique_ptr<base::Segment> store_;
  const BlockInfo info_;
  const bool give_back_;
  BlockStatistics statistics_;
};

std::string random_identity(base::Host& host) {
  std::array<std::byte, 16> bytes;
  host.random(bytes);
  std::string text = "memory:";
  for (std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

}  // namespace

Result<std::unique_ptr<BlockDevice>> create_memory_device(base::Host& host,
                                                          const MemoryDeviceOptions& options) {
  if (options.size_bytes == 0 || options.size_bytes > kMemoryDeviceBytesMax) {
    return make_error(Errc::kInvalid, "a memory device of {} bytes: must have 1 to {}",
                      options.size_bytes, kMemoryDeviceBytesMax);
  }
  BlockInfo info;
  info.identity = random_identity(host);
  info.size_bytes = (options.size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  info.logical_block_bytes = options.logical_block_bytes;
  info.physical_block_bytes = std::max<uint32_t>(options.logical_block_bytes, kPageBytes);
  info.max_io_bytes = options.max_io_bytes;
  info.max_discard_bytes = kRangeMax;
  info.max_write_zeroes_bytes = kRangeMax;
  info.discard_granularity_bytes = kPageBytes;
  info.queue_depth = options.queue_depth;
  info.write_cache = false;  // whoever survives to flush has lost nothing
  BRAID_TRY(auto store, host.create_segment(info.size_bytes, "memory device"));
  if (options.huge_pages) {
    const base::Status filled = base::populate_huge({store->data(), store->size()});
    if (!filled.ok()) return filled.error().with("{} bytes in huge pages", info.size_bytes);
  }
  const bool give_back = options.give_memory_back && !options.huge_pages;
  return std::unique_ptr<BlockDevice>(
      std::make_unique<MemoryDevice>(host, std::move(store), std::move(info), give_back));
}

}  // namespace braid::bnbd
