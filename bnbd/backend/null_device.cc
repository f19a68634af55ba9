// The null disk: takes everything, reads as zeroes.

#include <cstring>

#include "bnbd/backend/local_region.h"
#include "bnbd/backends.h"

namespace braid::bnbd {

using base::Errc;
using base::Result;

namespace {

class NullDevice : public BlockDevice {
 public:
  NullDevice(base::Host& host, std::unique_ptr<base::Segment> zeroes, BlockInfo info)
      : host_(host), zeroes_(std::move(zeroes)), info_(std::move(info)) {}

  const BlockInfo& info() const override { return info_; }
  std::span<std::byte> lendable_memory() override { return {zeroes_->data(), zeroes_->size()}; }
  BlockStatistics statistics() const override { return statistics_; }
  Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    return LocalRegion::create(host_, size_bytes);
  }

  void submit(BlockRequest& request) override {
    request.lent = nullptr;
    const Errc status = check(info_, request);
    if (status == Errc::kOk && request.op == BlockOp::kRead) {
      // The buffer may hold another client's bytes: it is filled even here.
      if (request.may_lend) {
        request.lent = zeroes_->data();
      } else {
        std::memset(request.buffer.address, 0, request.length_bytes);
      }
    }
    statistics_.count(request, status);
    request.done(request, status);
  }

 private:
  base::Host& host_;
  const std::unique_ptr<base::Segment> zeroes_;  // max_io_bytes of them
  const BlockInfo info_;
  BlockStatistics statistics_;
};

}  // namespace

Result<std::unique_ptr<BlockDevice>> create_null_device(base::Host& host,
                                                        const NullDeviceOptions& options) {
  BlockInfo info;
  info.identity = "null:" + options.name;
  info.size_bytes = options.size_bytes / 4096 * 4096;
  if (info.size_bytes == 0) {
    return base::make_error(Errc::kInvalid, "a null device of {} bytes: at least 4096",
                            options.size_bytes);
  }
  info.max_io_bytes = options.max_io_bytes;
  info.max_discard_bytes = uint64_t{1} << 30;
  info.max_write_zeroes_bytes = uint64_t{1} << 30;
  info.discard_granularity_bytes = 4096;
  info.queue_depth = options.queue_depth;
  info.write_cache = false;
  BRAID_TRY(auto zeroes, host.create_segment(options.max_io_bytes, "null device"));
  return std::unique_ptr<BlockDevice>(
      std::make_unique<NullDevice>(host, std::move(zeroes), std::move(info)));
}

}  // namespace braid::bnbd
