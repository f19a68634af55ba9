// The error filter: requests fail, and the device never sees them.
#include <atomic>

#include "bnbd/filter/filter_device.h"
#include "bnbd/filter/match.h"

namespace braid::bnbd::filter {

namespace {

/// What the reactors of a device count together.
struct ErrorCount {
  std::atomic<uint64_t> matched{0};
  std::atomic<uint64_t> failed{0};
};

class ErrorQueue final : public FilterQueue {
 public:
  ErrorQueue(base::Reactor& reactor, BlockDevice& below, const ErrorOptions& options,
             std::shared_ptr<ErrorCount> count)
      : FilterQueue(reactor, below),
        options_(options),
        count_(std::move(count)),
        matcher_(reactor.host(), options.match),
        deferred_(reactor, own_) {}

  void submit(BlockRequest& request) override {
    base::add_shared(requests_, 1);
    if (!fails(request)) return below_.submit(request);
    request.lent = nullptr;
    base::add_shared(failed_, 1);
    deferred_.end(request, options_.status);
  }
  void let_go() override { let_go_ = true; }
  bool busy() const override {
    return base::read_shared(failed_) != base::read_shared(own_.errors);
  }
  void add_to(FilterCounters& counters) const override {
    FilterQueue::add_to(counters);
    counters.failed += base::read_shared(failed_);
  }

 private:
  bool fails(const BlockRequest& request) {
    if (let_go_ || !options_.ops[static_cast<size_t>(request.op)]) return false;
    if (!matcher_.matches(request)) return false;
    constexpr auto kRelaxed = std::memory_order_relaxed;
    if (options_.every > 1 && (count_->matched.fetch_add(1, kRelaxed) + 1) % options_.every != 0)
      return false;
    return options_.count == 0 || (count_->failed.load(kRelaxed) < options_.count &&
                                   count_->failed.fetch_add(1, kRelaxed) < options_.count);
  }

  const ErrorOptions options_;
  const std::shared_ptr<ErrorCount> count_;
  Matcher matcher_;
  DeferredEnd deferred_;
  uint64_t failed_ = 0;
  bool let_go_ = false;
};

}  // namespace

std::unique_ptr<Filter> create_error(base::Reactor& home, BlockDevice& below,
                                     const FilterSpec& spec) {
  const auto count = std::make_shared<ErrorCount>();
  return std::make_unique<FilterDevice>(
      home, below, spec, [&](base::Reactor& reactor, BlockDevice& of) {
        return std::make_unique<ErrorQueue>(reactor, of, spec.error, count);
      });
}

}  // namespace braid::bnbd::filter
