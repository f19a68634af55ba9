// The delay filter: requests wait before they are submitted.
#include "bnbd/filter/filter_device.h"
#include "bnbd/filter/held_requests.h"
#include "bnbd/filter/match.h"

namespace braid::bnbd::filter {

namespace {

class DelayQueue final : public FilterQueue {
 public:
  DelayQueue(base::Reactor& reactor, BlockDevice& below, const DelayOptions& options)
      : FilterQueue(reactor, below),
        options_(options),
        matcher_(reactor.host(), options.match),
        held_(reactor, below) {}

  void submit(BlockRequest& request) override {
    base::add_shared(requests_, 1);
    const DelayOptions::Bounds& bounds = options_.by_op[static_cast<size_t>(request.op)];
    if (bounds.max_ns == 0 || held_.lets_go() || !matcher_.matches(request))
      return below_.submit(request);
    const uint64_t delay_ns = matcher_.between(bounds.min_ns, bounds.max_ns);
    if (delay_ns == 0) return below_.submit(request);
    base::add_shared(delayed_, 1);
    base::add_shared(delayed_ns_, delay_ns);
    // Not from the begin of the turn: that would be shorter than was asked for.
    held_.hold(request, reactor_.host().now_ns() + delay_ns);
  }
  void let_go() override { held_.let_go(); }
  bool busy() const override { return held_.count() > 0; }
  void add_to(FilterCounters& counters) const override {
    FilterQueue::add_to(counters);
    counters.held += base::read_shared(delayed_);
    counters.held_ns += base::read_shared(delayed_ns_);
    counters.holding += held_.count();
  }

 private:
  const DelayOptions options_;
  Matcher matcher_;
  HeldRequests held_;
  uint64_t delayed_ = 0;
  uint64_t delayed_ns_ = 0;
};

}  // namespace

std::unique_ptr<Filter> create_delay(base::Reactor& home, BlockDevice& below,
                                     const FilterSpec& spec) {
  return std::make_unique<FilterDevice>(
      home, below, spec, [&spec](base::Reactor& reactor, BlockDevice& of) {
        return std::make_unique<DelayQueue>(reactor, of, spec.delay);
      });
}

}  // namespace braid::bnbd::filter
