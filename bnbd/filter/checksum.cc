// The checksum filter: its device, which grows the table and tells what is wrong.
#include <fmt/format.h>

#include "base/limited_log.h"
#include "bnbd/filter/checksum_queue.h"

namespace braid::bnbd::filter {

using base::Errc;
using base::Result;
using base::Status;
using base::Task;

namespace {

/// On the home reactor, whichever reactor has found something.
class Mismatches : public std::enable_shared_from_this<Mismatches> {
 public:
  Mismatches(base::Reactor& home, std::string name)
      : home_(home),
        name_(std::move(name)),
        log_(home, home.log().child("checksum"), {.burst = 10, .per_second = 1}) {}

  /// Any of the device's reactors. It allocates, as what it tells of is not daily work.
  void tell(const Mismatch& mismatch) {
    home_.post([weak = weak_from_this(), mismatch] {
      if (const auto self = weak.lock()) self->take(mismatch);
    });
  }
  const std::string& last() const { return last_; }

 private:
  void take(const Mismatch& mismatch) {
    last_ = fmt::format("checksum of '{}', block {} (offset {}): want {:012x}, got {:012x}", name_,
                        mismatch.block, mismatch.offset_bytes, mismatch.want, mismatch.got);
    log_.of(name_).log(base::LogLevel::kError, "{}", last_);
  }

  base::Reactor& home_;
  const std::string name_;
  base::LimitedLog log_;
  std::string last_;
};

class ChecksumDevice final : public FilterDevice {
 public:
  ChecksumDevice(base::Reactor& home, BlockDevice& below, const FilterSpec& spec,
                 std::shared_ptr<ChecksumTable> table, std::shared_ptr<Mismatches> mismatches)
      : FilterDevice(home, below, spec,
                     [&](base::Reactor& reactor, BlockDevice& of) {
                       return std::make_unique<ChecksumQueue>(
                           reactor, of, below.info(), spec.checksum, table,
                           [mismatches](const Mismatch& first) { mismatches->tell(first); });
                     }),
        table_(std::move(table)),
        mismatches_(std::move(mismatches)) {}

  FilterCounters counters() const override {
    FilterCounters counters = FilterDevice::counters();
    counters.memory_bytes = table_->memory_bytes();
    return counters;
  }
  std::string explain() const override {
    const FilterCounters counted = counters();
    if (!mismatches_->last().empty())
      return fmt::format("{} blocks that were read are not what was written, the last one: {}",
                         counted.mismatches, mismatches_->last());
    const uint64_t covered_bytes = table_->covered_blocks() * spec_.checksum.block_bytes;
    if (info().size_bytes <= covered_bytes) return {};
    return fmt::format(
        "the filter '{}' checks the first {} bytes only: more memory= would check the rest", text(),
        covered_bytes);
  }
  void size_changed() override {
    table_->cut(below_.info().size_bytes);
    home_.spawn(sweep(home_, table_));
  }
  void forget() override {
    table_->cut(0);
    home_.spawn(sweep(home_, table_));
  }
  Task<Status> follow_size() override { return cover(home_, table_, below_); }

  /// The table outlives the work, which may be slow.
  static Task<Status> cover(base::Reactor& home, std::shared_ptr<ChecksumTable> table,
                            const BlockDevice& below) {
    while (table->needs_growth(below.info().size_bytes)) {
      const auto grown = std::make_shared<Status>();
      const uint64_t size_bytes = below.info().size_bytes;
      std::function<void()> work = [table, size_bytes, grown] { *grown = table->grow(size_bytes); };
      co_await home.offload(std::move(work));
      if (!grown->ok()) co_return *grown;
    }
    co_return Status();
  }

 private:
  static Task<void> sweep(base::Reactor& home, std::shared_ptr<ChecksumTable> table) {
    std::function<void()> work = [table] { table->sweep(); };
    co_await home.offload(std::move(work));
  }

  const std::shared_ptr<ChecksumTable> table_;
  const std::shared_ptr<Mismatches> mismatches_;
};

}  // namespace

Task<Result<std::unique_ptr<Filter>>> create_checksum(base::Reactor& home, BlockDevice& below,
                                                      FilterSpec spec, std::string name) {
  const ChecksumOptions& options = spec.checksum;
  if (options.block_bytes < below.info().logical_block_bytes)
    co_return base::make_error(Errc::kInvalid, "block={}: the device's own blocks have {} bytes",
                               options.block_bytes, below.info().logical_block_bytes);
  const auto table = std::make_shared<ChecksumTable>(options.block_bytes, options.memory_max_bytes);
  BRAID_CO_CHECK(co_await ChecksumDevice::cover(home, table, below));
  const auto mismatches = std::make_shared<Mismatches>(home, std::move(name));
  co_return std::unique_ptr<Filter>(
      std::make_unique<ChecksumDevice>(home, below, spec, table, mismatches));
}

}  // namespace braid::bnbd::filter
