// The rate filter: token buckets that all reactors of a device share.
//
// A bucket is one number, the time from which on it has no claim on anything: a request takes its
// place in time when it comes, and is held until then. So there is no queue to serve, requests of a
// direction keep their order, and a request may be larger than a bucket.
#include <algorithm>
#include <atomic>

#include "bnbd/filter/filter_device.h"
#include "bnbd/filter/held_requests.h"

namespace braid::bnbd::filter {

namespace {

class Bucket {
 public:
  Bucket(uint64_t per_second, uint64_t burst_ns) : per_second_(per_second), burst_ns_(burst_ns) {}

  /// When what takes so much may go.
  uint64_t take(uint64_t now_ns, uint64_t amount) {
    if (per_second_ == 0 || amount == 0) return 0;
    const auto needed = static_cast<unsigned __int128>(amount) * base::kSecond;
    const auto cost_ns = static_cast<uint64_t>((needed + per_second_ - 1) / per_second_);
    const uint64_t earliest_ns = now_ns > burst_ns_ ? now_ns - burst_ns_ : 0;
    uint64_t taken_until_ns = taken_until_ns_.load(std::memory_order_relaxed);
    uint64_t begin_ns = 0;
    do {
      begin_ns = std::max(taken_until_ns, earliest_ns);
    } while (!taken_until_ns_.compare_exchange_weak(taken_until_ns, begin_ns + cost_ns,
                                                    std::memory_order_relaxed));
    return begin_ns;
  }

 private:
  const uint64_t per_second_;  // 0: no limit
  const uint64_t burst_ns_;
  std::atomic<uint64_t> taken_until_ns_{0};
};

struct Buckets {
  Buckets(const RateOptions::Limit& limit, uint64_t burst_ns)
      : bytes(limit.bytes_per_second, burst_ns), ops(limit.ops_per_second, burst_ns) {}
  uint64_t take(uint64_t now_ns, uint64_t moved_bytes) {
    return std::max(bytes.take(now_ns, moved_bytes), ops.take(now_ns, 1));
  }
  Bucket bytes;
  Bucket ops;
};

struct DeviceBuckets {
  explicit DeviceBuckets(const RateOptions& options)
      : all(options.all, options.burst_ns),
        reads(options.reads, options.burst_ns),
        writes(options.writes, options.burst_ns) {}
  Buckets all, reads, writes;
};

class RateQueue final : public FilterQueue {
 public:
  RateQueue(base::Reactor& reactor, BlockDevice& below, std::shared_ptr<DeviceBuckets> buckets)
      : FilterQueue(reactor, below), buckets_(std::move(buckets)), held_(reactor, below) {}

  void submit(BlockRequest& request) override {
    base::add_shared(requests_, 1);
    // What will be refused takes nothing.
    const bool free = request.op == BlockOp::kFlush || held_.lets_go() ||
                      check(below_.info(), request) != base::Errc::kOk;
    if (free) return below_.submit(request);
    const uint64_t now_ns = reactor_.now_ns();
    const bool moves = request.op == BlockOp::kRead || request.op == BlockOp::kWrite;
    const uint64_t moved_bytes = moves ? request.length_bytes : 0;
    Buckets& direction = request.op == BlockOp::kRead ? buckets_->reads : buckets_->writes;
    const uint64_t due_ns =
        std::max(buckets_->all.take(now_ns, moved_bytes), direction.take(now_ns, moved_bytes));
    if (due_ns <= now_ns) return below_.submit(request);
    base::add_shared(throttled_, 1);
    base::add_shared(throttled_ns_, due_ns - now_ns);
    held_.hold(request, due_ns);
  }
  void let_go() override { held_.let_go(); }
  bool busy() const override { return held_.count() > 0; }
  void add_to(FilterCounters& counters) const override {
    FilterQueue::add_to(counters);
    counters.held += base::read_shared(throttled_);
    counters.held_ns += base::read_shared(throttled_ns_);
    counters.holding += held_.count();
  }

 private:
  const std::shared_ptr<DeviceBuckets> buckets_;
  HeldRequests held_;
  uint64_t throttled_ = 0;
  uint64_t throttled_ns_ = 0;
};

}  // namespace

std::unique_ptr<Filter> create_rate(base::Reactor& home, BlockDevice& below,
                                    const FilterSpec& spec) {
  const auto buckets = std::make_shared<DeviceBuckets>(spec.rate);
  return std::make_unique<FilterDevice>(home, below, spec,
                                        [&buckets](base::Reactor& reactor, BlockDevice& of) {
                                          return std::make_unique<RateQueue>(reactor, of, buckets);
                                        });
}

}  // namespace braid::bnbd::filter
