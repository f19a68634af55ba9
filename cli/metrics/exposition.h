// Prometheus' text format, version 0.0.4: one metric family after the other. Pure; any thread.
// https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace braid::cli {

/// The labels of a sample, in the order in which they were added: `a="b",c="d"`.
class Labels {
 public:
  Labels() = default;
  Labels(std::string_view name, std::string_view value) { add(name, value); }
  /// The name is the program's own. The value may be anybody's: quotes, backslashes and line ends
  /// are escaped, other control characters and what is no UTF-8 become `\xNN` (a scrape with such
  /// bytes would be refused as a whole). Of a value of more than 256 bytes the first 239 are kept,
  /// then `#` and a hash of it all, so that two series are the same for their names' length only if
  /// somebody looks for such names.
  Labels& add(std::string_view name, std::string_view value);
  /// A copy with one more.
  Labels with(std::string_view name, std::string_view value) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};
inline constexpr size_t kLabelBytesMax = 256;

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };
std::string_view to_string(MetricType type);

/// Up to `le`, as text in seconds, so many were counted: `count` is of all buckets up to here.
struct CumulativeBucket {
  std::string_view le;
  uint64_t count = 0;
};

/// A bound in seconds, without zeroes at its end: "0.001024", "8.589934592".
std::string seconds_text(uint64_t ns);

class Exposition {
 public:
  /// Begins a family; its samples follow. `help` is one line.
  void family(std::string_view name, MetricType type, std::string_view help);
  void sample(const Labels& labels, uint64_t value);
  /// A time, in seconds.
  void sample_ns(const Labels& labels, uint64_t value_ns);
  /// `below`: those that a bound counts, in order; `count` is of all.
  void histogram(const Labels& labels, std::span<const CumulativeBucket> below, uint64_t count,
                 uint64_t sum_ns);
  std::string take() { return std::move(text_); }

 private:
  void begin(std::string_view suffix, const Labels& labels, std::string_view le = {});
  void end(uint64_t value);
  void end_ns(uint64_t value_ns);

  std::string text_;
  std::string name_;  // of the family
};

}  // namespace braid::cli
