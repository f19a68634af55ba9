// How families of metrics are made of samples (private to cli/metrics/). The files by what is
// counted: node_families.cc, device_families.cc, filter_families.cc, session_families.cc,
// server_families.cc.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "cli/metrics/exposition.h"
#include "cli/metrics/sample.h"

namespace braid::cli {

inline constexpr MetricType kCounter = MetricType::kCounter;
inline constexpr MetricType kGauge = MetricType::kGauge;

/// Something that is counted, and its labels.
template <typename T>
struct Labelled {
  Labels labels;
  const T* of;
};

enum class Unit : uint8_t { kNone, kNanoseconds };

/// A family with one sample a thing.
template <typename T>
struct Family {
  std::string_view name;
  MetricType type;
  std::string_view help;
  uint64_t (*value)(const T&);
  Unit unit = Unit::kNone;
};

template <typename T>
void write(Exposition& text, std::span<const Family<T>> families,
           const std::vector<Labelled<T>>& things) {
  for (const Family<T>& family : families) {
    text.family(family.name, family.type, family.help);
    for (const Labelled<T>& thing : things) {
      const uint64_t value = family.value(*thing.of);
      if (family.unit == Unit::kNanoseconds)
        text.sample_ns(thing.labels, value);
      else
        text.sample(thing.labels, value);
    }
  }
}

/// A family that is 1 where a thing is in a state, and 0 for all others that it may be in.
template <typename T>
void write_states(Exposition& text, std::string_view name, std::string_view help,
                  std::span<const char* const> states, const std::vector<Labelled<T>>& things) {
  text.family(name, MetricType::kGauge, help);
  for (const Labelled<T>& thing : things)
    for (const char* state : states)
      text.sample(thing.labels.with("state", state), thing.of->state == state ? 1 : 0);
}

/// A family that is 1 for each thing, and tells of it by labels of its own.
template <typename T>
void write_info(Exposition& text, std::string_view name, std::string_view help,
                const std::vector<Labelled<T>>& things,
                const std::function<void(const T&, Labels&)>& tell) {
  text.family(name, MetricType::kGauge, help);
  for (const Labelled<T>& thing : things) {
    Labels labels = thing.labels;
    tell(*thing.of, labels);
    text.sample(labels, 1);
  }
}

void write_nodes(Exposition& text, std::span<const NodeSample> nodes);
void write_devices(Exposition& text, std::span<const NodeSample> nodes);
void write_filters(Exposition& text, std::span<const NodeSample> nodes);
void write_sessions(Exposition& text, std::span<const NodeSample> nodes);
void write_server(Exposition& text, std::span<const NodeSample> nodes);

}  // namespace braid::cli
