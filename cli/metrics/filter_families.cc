#include <string>

#include "cli/metrics/families.h"

namespace braid::cli {

namespace {

bool all(const FilterSample& /*filter*/) {
  return true;
}
bool holds(const FilterSample& filter) {
  return filter.kind == "delay" || filter.kind == "rate";
}
bool fails(const FilterSample& filter) {
  return filter.kind == "error" || filter.kind == "checksum";
}
bool compares(const FilterSample& filter) {
  return filter.kind == "checksum";
}

/// A family of those filters that count it.
struct FilterFamily {
  Family<FilterSample> family;
  bool (*counts)(const FilterSample&);
};

constexpr FilterFamily kFilter[] = {
    {{"braid_filter_requests_total", kCounter, "Requests that came to it.",
      [](const FilterSample& f) { return f.done.requests; }},
     &all},
    {{"braid_filter_held_total", kCounter, "Requests that were delayed, or waited for a rate.",
      [](const FilterSample& f) { return f.done.held; }},
     &holds},
    {{"braid_filter_held_seconds_total", kCounter, "How long these were to wait, together.",
      [](const FilterSample& f) { return f.done.held_ns; }, Unit::kNanoseconds},
     &holds},
    {{"braid_filter_requests_held", kGauge, "Requests that it holds.",
      [](const FilterSample& f) { return f.done.holding; }},
     &holds},
    {{"braid_filter_failed_total", kCounter,
      "Requests that it has failed, which no counter of its device has.",
      [](const FilterSample& f) { return f.done.failed; }},
     &fails},
    {{"braid_filter_blocks_learned_total", kCounter,
      "Of the unknown blocks, those that are known by their first read.",
      [](const FilterSample& f) { return f.done.learned; }},
     &compares},
    {{"braid_filter_memory_bytes", kGauge, "Memory for checksums.",
      [](const FilterSample& f) { return f.done.memory_bytes; }},
     &compares},
};

using Filters = std::vector<Labelled<FilterSample>>;

Filters those_that(bool (*counts)(const FilterSample&), const Filters& filters) {
  Filters some;
  for (const Labelled<FilterSample>& filter : filters)
    if (counts(*filter.of)) some.push_back(filter);
  return some;
}

void write_blocks(Exposition& text, const Filters& filters) {
  text.family("braid_filter_blocks_total", kCounter,
              "Blocks that were to be compared with their checksums, by what became of them.");
  for (const Labelled<FilterSample>& filter : those_that(&compares, filters)) {
    const bnbd::FilterCounters& done = filter.of->done;
    const auto tell = [&](const char* result, uint64_t count) {
      text.sample(filter.labels.with("result", result), count);
    };
    tell("verified", done.verified);
    tell("mismatched", done.mismatches);
    tell("unknown", done.unknown);
    tell("changing", done.changing);
    tell("partial", done.partial);
  }
}

}  // namespace

void write_filters(Exposition& text, std::span<const NodeSample> nodes) {
  Filters filters;
  for (const NodeSample& node : nodes)
    for (const DeviceSample& device : node.devices)
      for (size_t i = 0; i < device.filters.size(); ++i)
        filters.push_back(
            {Labels("node", node.node).add("device", device.name).add("filter", std::to_string(i)),
             &device.filters[i]});
  write_info<FilterSample>(text, "braid_filter_info",
                           "A filter of a device, 0 the nearest to the kernel, and its words.",
                           filters, [](const FilterSample& filter, Labels& labels) {
                             labels.add("kind", filter.kind).add("spec", filter.spec);
                           });
  for (const FilterFamily& one : kFilter)
    write<FilterSample>(text, {&one.family, 1}, those_that(one.counts, filters));
  write_blocks(text, filters);
}

}  // namespace braid::cli
