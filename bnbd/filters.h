// Filters on the block seam: delay, error, rate and checksum (docs/filters.md).
//
// A filter is a BlockDevice over a BlockDevice, so filters stack, and any front end works with
// them. Regions, lendable memory and limits are those of the device below, but for what a filter
// says otherwise; a device with several reactors (BlockDevice::queues()) is filtered on each.
//
//   user -> first filter -> second filter -> device
//
// Data path: no allocation, lock or system call. A filter that holds a request keeps it in the
// request itself; a checksum keeps `queue_depth` requests of its own on each reactor, more wait.
//
// Threads: as BlockDevice; parse_filter(), to_string() and counters() on any.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/result.h"
#include "base/task.h"
#include "bnbd/block.h"

namespace braid::bnbd {

enum class FilterKind : uint8_t { kDelay, kError, kRate, kChecksum };
std::string_view to_string(FilterKind kind);

inline constexpr size_t kBlockOps = 6;  // of BlockOp

/// Which requests a delay or an error is about.
struct FilterMatch {
  double percent = 100;  // of them, drawn at random; above 0
  /// Requests that touch these bytes; both 0: all requests. A flush has no place: with a range it
  /// is left out.
  uint64_t from_bytes = 0;
  uint64_t to_bytes = 0;  // the first one behind; 0: to the end
  bool operator==(const FilterMatch&) const = default;
};

struct DelayOptions {
  /// Drawn evenly between both for each request. Before it is submitted below; a flush covers what
  /// was done before its delay began, for which it is noted then (BlockDevice::note_flush()).
  struct Bounds {
    uint64_t min_ns = 0;
    uint64_t max_ns = 0;  // 0: not delayed
    bool operator==(const Bounds&) const = default;
  };
  std::array<Bounds, kBlockOps> by_op{};  // by BlockOp
  FilterMatch match;
  bool operator==(const DelayOptions&) const = default;
};

/// Requests that fail without reaching the device.
struct ErrorOptions {
  std::array<bool, kBlockOps> ops{};  // by BlockOp
  FilterMatch match;
  uint64_t every = 1;  // the last one of so many that match
  uint64_t count = 0;  // so many fail, then none; 0: for ever
  base::Errc status = base::Errc::kIo;
  bool operator==(const ErrorOptions&) const = default;
};

/// Token buckets. Bytes: those that reads and writes move. Operations: all but flushes; what is not
/// a read counts as a write.
struct RateOptions {
  struct Limit {
    uint64_t bytes_per_second = 0;  // 0: no limit
    uint64_t ops_per_second = 0;
    bool operator==(const Limit&) const = default;
  };
  Limit all, reads, writes;
  uint64_t burst_ns = 100'000'000;  // what is not used is kept for so long
  bool operator==(const RateOptions&) const = default;
};

/// Checksums of what was written through the filter, which reads are compared with. Good only where
/// nobody else writes to the device.
struct ChecksumOptions {
  uint32_t block_bytes = 4096;             // a power of two
  uint64_t memory_max_bytes = 1ULL << 30;  // 8 for each block; what is beyond is not checked
  bool learn = false;  // a block that was not written through the filter is known by its first read
  bool operator==(const ChecksumOptions&) const = default;
};

struct FilterSpec {
  FilterKind kind = FilterKind::kDelay;
  DelayOptions delay;  // of these the one of the kind
  ErrorOptions error;
  RateOptions rate;
  ChecksumOptions checksum;
  bool operator==(const FilterSpec&) const = default;
};

/// "delay:read=200us,write=1ms-5ms", "error:write,every=100", "rate:bytes=100M,ops=5000",
/// "checksum": docs/filters.md has all words. kInvalid names the word and says what would be right.
base::Result<FilterSpec> parse_filter(std::string_view text);
/// As parse_filter() reads it.
std::string to_string(const FilterSpec& spec);

inline constexpr size_t kFiltersMax = 16;  // of a device

/// What a filter has done; those that its kind does not know are 0.
struct FilterCounters {
  uint64_t requests = 0;  // that came
  uint64_t held = 0;      // delayed or throttled
  uint64_t held_ns = 0;   // for so long, together
  uint64_t holding = 0;   // now
  uint64_t failed = 0;    // requests that it has failed
  // Checksum: blocks that were read, by what became of them.
  uint64_t verified = 0;
  uint64_t mismatches = 0;
  uint64_t unknown = 0;   // no checksum was known
  uint64_t changing = 0;  // written meanwhile
  uint64_t partial = 0;   // read, or written, in part
  uint64_t learned = 0;   // of the unknown ones
  uint64_t memory_bytes = 0;
};

class Filter : public BlockDevice {
 public:
  virtual FilterKind kind() const = 0;
  virtual const std::string& text() const = 0;  // its specification
  virtual FilterCounters counters() const = 0;
  /// A sentence about what it does to requests now or has done, for `braid why`; empty: nothing.
  virtual std::string explain() const = 0;
  /// Passes on what it holds, and holds nothing any more: its device is being given up. The filter
  /// outlives the task.
  virtual base::Task<void> let_go() = 0;
  /// Ends when it has no request under way. Nobody submits meanwhile. Then it may be destroyed,
  /// also if it has several reactors. The filter outlives the task.
  virtual base::Task<void> drained() = 0;
  /// The device below may have another size. At once, whenever it has changed.
  virtual void size_changed() {}
  /// Takes over a larger size: until then the filter may show the former one. The filter outlives
  /// the task.
  virtual base::Task<base::Status> follow_size() { co_return base::ok_status(); }
  /// Somebody else may have written to the device.
  virtual void forget() {}
};

/// Filters over one device, made and destroyed together. On the home reactor.
class FilterStack {
 public:
  ~FilterStack();
  FilterStack(const FilterStack&) = delete;
  FilterStack& operator=(const FilterStack&) = delete;
  /// The first of `specs` is nearest to the user. `device` outlives the stack; its name is for
  /// messages. kNoMemory: for checksums; kInvalid: a block of checksums that does not fit.
  static base::Task<base::Result<std::unique_ptr<FilterStack>>> create(
      base::Reactor& home, BlockDevice& device, std::vector<FilterSpec> specs, std::string name);

  BlockDevice& top() { return *filters_.front(); }
  /// The first is nearest to the user.
  const std::vector<std::unique_ptr<Filter>>& filters() const { return filters_; }

  // --- of all filters, see Filter
  base::Task<void> let_go();
  base::Task<void> drained();
  void size_changed();
  base::Task<base::Status> follow_size();
  void forget();
  std::vector<std::string> explain() const;
  uint64_t holding() const;  // requests, now

 private:
  FilterStack() = default;
  std::vector<std::unique_ptr<Filter>> filters_;
};

}  // namespace braid::bnbd
