#include "bnbd/filter/filter_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/await.h"

namespace braid::bnbd::filter {

namespace {

constexpr uint64_t kDrainLookNs = base::kMillisecond;

std::string seconds_text(uint64_t duration_ns) {
  return fmt::format("{:.3g} s", static_cast<double>(duration_ns) / 1e9);
}

}  // namespace

FilterDevice::FilterDevice(base::Reactor& home, BlockDevice& below, const FilterSpec& spec,
                           const MakeQueue& make)
    : home_(home),
      below_(below),
      spec_(spec),
      text_(to_string(spec)),
      several_(!below.queues().empty()) {
  std::vector<BlockQueue> queues = below.queues();
  if (queues.empty()) queues.push_back({&home, &below});
  BRAID_ASSERT(queues.front().reactor == &home);
  for (const BlockQueue& queue : queues) queues_.push_back(make(*queue.reactor, *queue.device));
}

std::vector<BlockQueue> FilterDevice::queues() {
  if (!several_) return {};
  std::vector<BlockQueue> all{{&home_, this}};
  for (size_t i = 1; i < queues_.size(); ++i)
    all.push_back({&queues_[i]->reactor(), queues_[i].get()});
  return all;
}

BlockStatistics FilterDevice::statistics() const {
  BlockStatistics all = below_.statistics();
  for (const auto& queue : queues_) queue->add_own(all);
  return all;
}

base::Task<base::Status> FilterDevice::resize(uint64_t size_bytes) {
  const base::Status resized = co_await below_.resize(size_bytes);
  if (!resized.ok()) co_return resized;
  size_changed();
  co_return co_await follow_size();
}

base::Task<base::Result<bool>> FilterDevice::refresh_size() {
  BRAID_CO_TRY(const bool changed, co_await below_.refresh_size());
  if (!changed) co_return false;
  size_changed();
  BRAID_CO_CHECK(co_await follow_size());
  co_return true;
}

FilterCounters FilterDevice::counters() const {
  FilterCounters sum;
  for (const auto& queue : queues_) queue->add_to(sum);
  return sum;
}

std::string FilterDevice::explain() const {
  const FilterCounters sum = counters();
  if (sum.failed > 0)
    return fmt::format("the filter '{}' has failed {} of {} requests", text_, sum.failed,
                       sum.requests);
  if (sum.held == 0) return {};
  return fmt::format("the filter '{}' holds {} requests now; it has held {} of {}, {} each", text_,
                     sum.holding, sum.held, sum.requests, seconds_text(sum.held_ns / sum.held));
}

/// Ends when it has run on all reactors.
base::Task<void> FilterDevice::on_each(std::function<void(FilterQueue&)> function) {
  struct Round {
    explicit Round(base::Reactor& home, size_t count) : left(count), changed(home) {}
    size_t left;
    base::Signal changed;
  };
  const auto round = std::make_shared<Round>(home_, queues_.size() - 1);
  for (size_t i = 1; i < queues_.size(); ++i) {
    queues_[i]->reactor().post([queue = queues_[i].get(), function, home = &home_, round] {
      function(*queue);
      home->post([round] {
        --round->left;
        round->changed.notify_all();
      });
    });
  }
  function(*queues_.front());
  while (round->left > 0) co_await round->changed.wait();
}

base::Task<void> FilterDevice::let_go() {
  std::function<void(FilterQueue&)> go = [](FilterQueue& queue) { queue.let_go(); };
  co_await on_each(std::move(go));
}

/// After the last request its reactor may still be on the way out of the queue: a round over all
/// reactors shows that it is not.
base::Task<void> FilterDevice::drained() {
  const auto busy = [](const std::unique_ptr<FilterQueue>& queue) { return queue->busy(); };
  while (std::any_of(queues_.begin(), queues_.end(), busy)) co_await home_.sleep_ns(kDrainLookNs);
  std::function<void(FilterQueue&)> nothing = [](FilterQueue&) {};
  co_await on_each(std::move(nothing));
}

}  // namespace braid::bnbd::filter
