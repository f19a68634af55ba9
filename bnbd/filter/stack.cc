#include <fmt/format.h>

#include "base/reactor.h"
#include "bnbd/filter/filter_device.h"

namespace braid::bnbd {

using base::Errc;
using base::Result;
using base::Status;
using base::Task;

namespace {

Task<Result<std::unique_ptr<Filter>>> create_filter(base::Reactor& home, BlockDevice& below,
                                                    FilterSpec spec, std::string name) {
  switch (spec.kind) {
    case FilterKind::kDelay:
      co_return filter::create_delay(home, below, spec);
    case FilterKind::kError:
      co_return filter::create_error(home, below, spec);
    case FilterKind::kRate:
      co_return filter::create_rate(home, below, spec);
    case FilterKind::kChecksum:
      break;
  }
  co_return co_await filter::create_checksum(home, below, spec, std::move(name));
}

}  // namespace

/// Each borrows the one behind it.
FilterStack::~FilterStack() {
  for (auto& filter : filters_) filter.reset();
}

Task<Result<std::unique_ptr<FilterStack>>> FilterStack::create(base::Reactor& home,
                                                               BlockDevice& device,
                                                               std::vector<FilterSpec> specs,
                                                               std::string name) {
  if (specs.empty() || specs.size() > kFiltersMax)
    co_return base::make_error(Errc::kInvalid, "{} filters on '{}': want 1 to {}", specs.size(),
                               name, kFiltersMax);
  std::unique_ptr<FilterStack> stack(new FilterStack());
  stack->filters_.resize(specs.size());
  BlockDevice* below = &device;
  for (size_t i = specs.size(); i-- > 0;) {
    auto filter = co_await create_filter(home, *below, specs[i], name);
    if (!filter.ok()) co_return filter.error().with("filter '{}'", to_string(specs[i]));
    stack->filters_[i] = std::move(*filter);
    below = stack->filters_[i].get();
  }
  co_return stack;
}

Task<void> FilterStack::let_go() {
  for (const auto& filter : filters_) co_await filter->let_go();
}

Task<void> FilterStack::drained() {
  for (const auto& filter : filters_) co_await filter->drained();
}

void FilterStack::size_changed() {
  for (const auto& filter : filters_) filter->size_changed();
}

/// From the device upwards: a filter has the size of the one below it.
Task<Status> FilterStack::follow_size() {
  for (size_t i = filters_.size(); i-- > 0;) {
    const Status followed = co_await filters_[i]->follow_size();
    if (!followed.ok()) co_return followed.error().with("filter '{}'", filters_[i]->text());
  }
  co_return Status();
}

void FilterStack::forget() {
  for (const auto& filter : filters_) filter->forget();
}

uint64_t FilterStack::holding() const {
  uint64_t sum = 0;
  for (const auto& filter : filters_) sum += filter->counters().holding;
  return sum;
}

std::vector<std::string> FilterStack::explain() const {
  std::vector<std::string> texts;
  for (const auto& filter : filters_)
    if (std::string text = filter->explain(); !text.empty()) texts.push_back(std::move(text));
  return texts;
}

}  // namespace braid::bnbd
