// The text form of filters, as `braid map --filter` takes it. What is accepted obeys the rules that
// filters rely on, and reads the same when it is written out.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "bnbd/filters.h"
#include "tests/fuzz/reached.h"

namespace {

using namespace braid::bnbd;

braid::fuzz::Verdicts filters("filter");

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const FilterMatch& match) {
  require(match.percent > 0 && match.percent <= 100);
  require(match.to_bytes == 0 || match.to_bytes > match.from_bytes);
}

void check(const FilterSpec& spec) {
  constexpr uint64_t kHourNs = 3'600'000'000'000;
  switch (spec.kind) {
    case FilterKind::kDelay:
      check(spec.delay.match);
      for (const DelayOptions::Bounds& bounds : spec.delay.by_op)
        require(bounds.min_ns <= bounds.max_ns && bounds.max_ns <= kHourNs);
      require(std::any_of(spec.delay.by_op.begin(), spec.delay.by_op.end(),
                          [](const auto& bounds) { return bounds.max_ns > 0; }));
      break;
    case FilterKind::kError:
      check(spec.error.match);
      require(spec.error.every > 0 && spec.error.status != braid::base::Errc::kOk);
      require(std::count(spec.error.ops.begin(), spec.error.ops.end(), true) > 0);
      break;
    case FilterKind::kRate:
      for (const RateOptions::Limit& limit : {spec.rate.all, spec.rate.reads, spec.rate.writes})
        require(limit.bytes_per_second == 0 || limit.bytes_per_second >= 4096);
      require(spec.rate != RateOptions{.burst_ns = spec.rate.burst_ns});
      require(spec.rate.burst_ns <= kHourNs);
      break;
    case FilterKind::kChecksum:
      require(std::has_single_bit(spec.checksum.block_bytes) && spec.checksum.block_bytes >= 512);
      require(spec.checksum.memory_max_bytes >= 1 << 20);
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  auto spec = parse_filter(text);
  if (!filters.count(spec.ok())) return 0;
  check(*spec);
  auto again = parse_filter(to_string(*spec));
  require(again.ok() && *again == *spec);
  return 0;
}
