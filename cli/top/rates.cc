#include "cli/top/rates.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "trs/connection_statistics.h"

namespace braid::cli {

std::string_view to_string(RowKind kind) {
  switch (kind) {
    case RowKind::kDevice:
      return "device";
    case RowKind::kPath:
      return "path";
    case RowKind::kExport:
      return "export";
  }
  return "?";
}

namespace {

/// What only grows, of anything that has a row.
struct Counts {
  uint64_t reads = 0, read_bytes = 0, writes = 0, write_bytes = 0, errors = 0;
};
Counts counts_of(const bnbd::BlockStatistics& io) {
  return {io.reads, io.read_bytes, io.writes, io.write_bytes, io.errors};
}
/// What a filter fails is no failure of the device below it.
Counts counts_of(const DeviceSample& device) {
  Counts counts = counts_of(device.io);
  for (const FilterSample& filter : device.filters) counts.errors += filter.done.failed;
  return counts;
}
Counts counts_of(const trs::ConnectionStatistics& io) {
  return {io.reads, io.read_bytes, io.writes, io.write_bytes, io.errors};
}

/// Of a disk that has returned other data than was written, too: it is not well.
std::string state_of(const DeviceSample& device) {
  std::string state = device.state;
  if (device.gave_up) state += " (gave up)";
  const auto differed = [](const FilterSample& filter) { return filter.done.mismatches > 0; };
  if (std::any_of(device.filters.begin(), device.filters.end(), differed)) state += " (wrong data)";
  return state;
}

/// None: one of them has gone back.
std::optional<Rates> rates_of(const Counts& before, const Counts& after, uint64_t interval_ns) {
  const auto grown = [](uint64_t from, uint64_t to) { return to >= from; };
  if (interval_ns == 0 || !grown(before.reads, after.reads) ||
      !grown(before.read_bytes, after.read_bytes) || !grown(before.writes, after.writes) ||
      !grown(before.write_bytes, after.write_bytes) || !grown(before.errors, after.errors))
    return std::nullopt;
  const double seconds = static_cast<double>(interval_ns) / 1e9;
  const auto rate = [&](uint64_t from, uint64_t to) {
    return static_cast<double>(to - from) / seconds;
  };
  Rates rates;
  rates.reads = rate(before.reads, after.reads);
  rates.read_bytes = rate(before.read_bytes, after.read_bytes);
  rates.writes = rate(before.writes, after.writes);
  rates.written_bytes = rate(before.write_bytes, after.write_bytes);
  rates.errors = rate(before.errors, after.errors);
  return rates;
}

double queue_of(uint64_t latency_sum_ns, uint64_t interval_ns) {
  return static_cast<double>(latency_sum_ns) / static_cast<double>(interval_ns);
}

HistogramSample of_all_kinds(const DeviceSample& device) {
  std::map<uint32_t, uint64_t> counts;
  HistogramSample all;
  for (const HistogramSample& one : device.latency) {
    for (const auto& [index, count] : one.buckets) counts[index] += count;
    all.sum_ns += one.sum_ns;
  }
  all.buckets.assign(counts.begin(), counts.end());
  return all;
}

void add_latency(const DeviceSample& before, const DeviceSample& after, uint64_t interval_ns,
                 std::optional<Rates>& rates) {
  const auto ended = difference(of_all_kinds(before), of_all_kinds(after));
  if (!ended) rates.reset();
  if (!rates || ended->buckets.empty()) return;
  rates->queue = queue_of(ended->sum_ns, interval_ns);
  rates->p50_us = static_cast<double>(percentile_ns(*ended, 50)) / 1000;
  rates->p99_us = static_cast<double>(percentile_ns(*ended, 99)) / 1000;
}

void add_latency(const trs::ConnectionStatistics& before, const trs::ConnectionStatistics& after,
                 uint64_t interval_ns, Rates& rates) {
  trs::ConnectionStatistics ended;
  for (size_t i = 0; i < ended.latency.size(); ++i) {
    if (after.latency[i] < before.latency[i]) return;
    ended.latency[i] = after.latency[i] - before.latency[i];
  }
  if (after.latency_sum_ns < before.latency_sum_ns || trs::answers_counted(ended) == 0) return;
  rates.queue = queue_of(after.latency_sum_ns - before.latency_sum_ns, interval_ns);
  rates.p50_us = static_cast<double>(trs::latency_percentile_us(ended, 50));
  rates.p99_us = static_cast<double>(trs::latency_percentile_us(ended, 99));
}

/// The thing of `all` that is the same as `one`; null: none.
template <typename T, typename Same>
const T* find(const std::vector<T>& all, Same same) {
  const auto found = std::find_if(all.begin(), all.end(), same);
  return found == all.end() ? nullptr : &*found;
}

/// The rows of one node. `before`: the same process; null: there is no earlier sample of it.
class NodeRows {
 public:
  NodeRows(const NodeSample* before, const NodeSample& after, std::vector<TopRow>& rows)
      : before_(before),
        after_(after),
        interval_ns_(before != nullptr && after.at_ns > before->at_ns ? after.at_ns - before->at_ns
                                                                      : 0),
        rows_(rows) {
    if (before_ == nullptr) return;
    for (const DeviceSample& device : before_->devices) devices_[device.name] = &device;
    for (const ExportSample& exported : before_->exports) exports_[exported.name] = &exported;
  }

  void add_all() {
    for (const DeviceSample& device : after_.devices) add(device);
    for (const SessionSample& session : after_.sessions)
      for (const PathSample& path : session.paths) add(session, path);
    for (const ExportSample& exported : after_.exports) add(exported);
  }

 private:
  TopRow& begin(RowKind kind, std::string name, std::string state) {
    rows_.push_back({kind, after_.node, std::move(name), std::move(state), std::nullopt});
    return rows_.back();
  }
  void add(const DeviceSample& device) {
    TopRow& row = begin(RowKind::kDevice, device.name, state_of(device));
    const auto before = devices_.find(device.name);
    // Another session, or target: it was mapped anew.
    if (before == devices_.end() || before->second->session != device.session ||
        before->second->target != device.target)
      return;
    row.rates = rates_of(counts_of(*before->second), counts_of(device), interval_ns_);
    add_latency(*before->second, device, interval_ns_, row.rates);
  }
  void add(const SessionSample& session, const PathSample& path) {
    TopRow& row = begin(
        RowKind::kPath,
        session.server == path.path ? path.path : session.server + " by " + path.path, path.state);
    if (before_ == nullptr) return;
    const auto* const same = find(
        before_->sessions, [&](const SessionSample& one) { return one.number == session.number; });
    const auto* const earlier =
        same == nullptr
            ? nullptr
            : find(same->paths, [&](const PathSample& one) { return one.id == path.id; });
    if (earlier == nullptr) return;
    const trs::ConnectionStatistics from = io_of(*earlier), to = io_of(path);
    row.rates = rates_of(counts_of(from), counts_of(to), interval_ns_);
    if (row.rates) add_latency(from, to, interval_ns_, *row.rates);
  }
  void add(const ExportSample& exported) {
    const HoldersSample& holders = exported.holders;
    const uint64_t users = holders.ro + holders.rw + holders.migration;
    TopRow& row = begin(RowKind::kExport, exported.name,
                        users == 0 ? "free" : "open by " + std::to_string(users));
    const auto before = exports_.find(exported.name);
    if (before == exports_.end()) return;
    row.rates = rates_of(counts_of(before->second->io), counts_of(exported.io), interval_ns_);
  }

  const NodeSample* const before_;
  const NodeSample& after_;
  const uint64_t interval_ns_;
  std::vector<TopRow>& rows_;
  std::map<std::string, const DeviceSample*> devices_;
  std::map<std::string, const ExportSample*> exports_;
};

}  // namespace

std::optional<HistogramSample> difference(const HistogramSample& before,
                                          const HistogramSample& after) {
  if (after.sum_ns < before.sum_ns) return std::nullopt;
  HistogramSample grown;
  grown.sum_ns = after.sum_ns - before.sum_ns;
  auto from = before.buckets.begin();
  for (const auto& [index, count] : after.buckets) {
    if (from != before.buckets.end() && from->first < index) return std::nullopt;
    uint64_t here = count;
    if (from != before.buckets.end() && from->first == index) {
      if (count < from->second) return std::nullopt;
      here -= from->second;
      ++from;
    }
    if (here != 0) grown.buckets.emplace_back(index, here);
  }
  if (from != before.buckets.end()) return std::nullopt;
  return grown;
}

std::vector<TopRow> rows_between(std::span<const NodeSample> before,
                                 std::span<const NodeSample> after) {
  std::vector<TopRow> rows;
  for (const NodeSample& node : after) {
    const auto same = std::find_if(before.begin(), before.end(), [&](const NodeSample& one) {
      return one.node == node.node && one.process.pid == node.process.pid &&
             one.process.started_s == node.process.started_s;
    });
    NodeRows(same == before.end() ? nullptr : &*same, node, rows).add_all();
  }
  return rows;
}

std::string_view to_string(TopOrder order) {
  switch (order) {
    case TopOrder::kBytes:
      return "bytes";
    case TopOrder::kOperations:
      return "operations";
    case TopOrder::kLatency:
      return "latency";
    case TopOrder::kName:
      return "name";
  }
  return "?";
}

TopOrder next_order(TopOrder order) {
  constexpr std::array kOrders = {TopOrder::kBytes, TopOrder::kOperations, TopOrder::kLatency,
                                  TopOrder::kName};
  return kOrders[(static_cast<size_t>(order) + 1) % kOrders.size()];
}

namespace {

double load_of(const TopRow& row, TopOrder order) {
  if (!row.rates) return -1;
  switch (order) {
    case TopOrder::kBytes:
      return row.rates->read_bytes + row.rates->written_bytes;
    case TopOrder::kOperations:
      return row.rates->reads + row.rates->writes;
    case TopOrder::kLatency:
      return row.rates->p99_us.value_or(0);
    case TopOrder::kName:
      return 0;
  }
  return 0;
}

}  // namespace

void sort_rows(std::vector<TopRow>& rows, TopOrder order) {
  const auto key = [order](const TopRow& row) {
    const double load = order == TopOrder::kName ? 0 : -load_of(row, order);
    return std::make_tuple(row.kind, load, std::string_view(row.name), std::string_view(row.node));
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const TopRow& a, const TopRow& b) { return key(a) < key(b); });
}

}  // namespace braid::cli
