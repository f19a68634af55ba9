// What all filters have in common: a device of one reactor each (FilterQueue), and the device that
// owns them (FilterDevice).
//
// What a kind of filter shares between its reactors is its own affair: atomics, no locks.
//
// Threads: a FilterQueue's its reactor, but for what says otherwise; a FilterDevice's the home.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/reactor.h"
#include "base/single_writer.h"
#include "bnbd/deferred_end.h"
#include "bnbd/filters.h"

namespace braid::bnbd::filter {

/// A filter as one reactor submits to it. `below`: the device below, on the same reactor.
class FilterQueue : public BlockDevice {
 public:
  FilterQueue(base::Reactor& reactor, BlockDevice& below) : reactor_(reactor), below_(below) {}

  // --- BlockDevice
  const BlockInfo& info() const override { return below_.info(); }
  void note_flush(FlushNote& note) override { below_.note_flush(note); }
  void note_told(Untold& untold, bool heard) override { below_.note_told(untold, heard); }
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    return below_.create_region(size_bytes);
  }
  std::span<std::byte> lendable_memory() override { return below_.lendable_memory(); }
  BlockStatistics statistics() const override {
    BlockStatistics all = below_.statistics();
    add_own(all);
    return all;
  }

  // --- any thread
  base::Reactor& reactor() { return reactor_; }
  /// What it has failed by itself.
  void add_own(BlockStatistics& statistics) const { statistics.add(own_); }
  virtual void add_to(FilterCounters& counters) const {
    counters.requests += base::read_shared(requests_);
  }
  /// It, not the device below, has to do something for requests before they end.
  virtual bool busy() const = 0;

  virtual void let_go() {}

 protected:
  base::Reactor& reactor_;
  BlockDevice& below_;
  uint64_t requests_ = 0;
  BlockStatistics own_;  // errors only
};

/// A filter on all reactors of the device below.
class FilterDevice : public Filter {
 public:
  /// The part for one reactor; once for each, the home first.
  using MakeQueue = std::function<std::unique_ptr<FilterQueue>(base::Reactor&, BlockDevice& below)>;
  FilterDevice(base::Reactor& home, BlockDevice& below, const FilterSpec& spec,
               const MakeQueue& make);

  // --- BlockDevice
  const BlockInfo& info() const override { return queues_.front()->info(); }
  void submit(BlockRequest& request) override { queues_.front()->submit(request); }
  void note_flush(FlushNote& note) override { below_.note_flush(note); }
  void note_told(Untold& untold, bool heard) override { below_.note_told(untold, heard); }
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    return below_.create_region(size_bytes);
  }
  std::span<std::byte> lendable_memory() override { return queues_.front()->lendable_memory(); }
  std::vector<BlockQueue> queues() override;
  BlockStatistics statistics() const override;
  base::Task<base::Status> resize(uint64_t size_bytes) override;
  base::Task<base::Result<bool>> refresh_size() override;
  std::shared_ptr<base::File> file() const override { return below_.file(); }

  // --- Filter
  FilterKind kind() const override { return spec_.kind; }
  const std::string& text() const override { return text_; }
  FilterCounters counters() const override;
  std::string explain() const override;
  base::Task<void> let_go() override;
  base::Task<void> drained() override;

 protected:
  base::Reactor& home_;
  BlockDevice& below_;
  const FilterSpec spec_;

 private:
  base::Task<void> on_each(std::function<void(FilterQueue&)> function);

  const std::string text_;
  const bool several_;  // the device below names its reactors
  std::vector<std::unique_ptr<FilterQueue>> queues_;
};

std::unique_ptr<Filter> create_delay(base::Reactor& home, BlockDevice& below,
                                     const FilterSpec& spec);
std::unique_ptr<Filter> create_error(base::Reactor& home, BlockDevice& below,
                                     const FilterSpec& spec);
std::unique_ptr<Filter> create_rate(base::Reactor& home, BlockDevice& below,
                                    const FilterSpec& spec);
base::Task<base::Result<std::unique_ptr<Filter>>> create_checksum(base::Reactor& home,
                                                                  BlockDevice& below,
                                                                  FilterSpec spec,
                                                                  std::string name);

}  // namespace braid::bnbd::filter
