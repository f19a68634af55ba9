#include "cli/metrics/exposition.h"

#include <fmt/format.h>

#include "base/plain_text.h"

namespace braid::cli {

namespace {

constexpr size_t kHashBytes = 17;  // "#0123456789abcdef"

void append_escaped(std::string& text, std::string_view value) {
  const char* const end = value.data() + value.size();
  for (const char* at = value.data(); at != end;) {
    const size_t bytes = base::plain_character_bytes(at, end);
    if (*at == '\\' || *at == '"') {
      text += '\\';
      text += *at++;
    } else if (*at == '\n') {
      text += "\\n";
      ++at;
    } else if (bytes == 0) {
      text += fmt::format("\\\\x{:02x}", static_cast<unsigned char>(*at++));
    } else {
      text.append(at, bytes);
      at += bytes;
    }
  }
}

/// FNV-1a of 64 bits, http://www.isthe.com/chongo/tech/comp/fnv/: no library, which `braid` would
/// have to load.
uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

Labels& Labels::add(std::string_view name, std::string_view value) {
  if (!text_.empty()) text_ += ',';
  text_.append(name).append("=\"");
  if (value.size() <= kLabelBytesMax) {
    append_escaped(text_, value);
  } else {
    append_escaped(text_, value.substr(0, kLabelBytesMax - kHashBytes));
    text_ += fmt::format("#{:016x}", fnv1a(value));
  }
  text_ += '"';
  return *this;
}

Labels Labels::with(std::string_view name, std::string_view value) const {
  Labels more = *this;
  more.add(name, value);
  return more;
}

std::string_view to_string(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

std::string seconds_text(uint64_t ns) {
  std::string text = fmt::format("{}.{:09}", ns / 1'000'000'000, ns % 1'000'000'000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

void Exposition::family(std::string_view name, MetricType type, std::string_view help) {
  name_ = name;
  text_.append("# HELP ").append(name).append(" ").append(help).append("\n");
  text_.append("# TYPE ").append(name).append(" ").append(to_string(type)).append("\n");
}

void Exposition::begin(std::string_view suffix, const Labels& labels, std::string_view le) {
  text_.append(name_).append(suffix);
  if (labels.text().empty() && le.empty()) {
    text_ += ' ';
    return;
  }
  text_.append("{").append(labels.text());
  if (!le.empty())
    text_.append(labels.text().empty() ? "" : ",").append("le=\"").append(le).append("\"");
  text_.append("} ");
}

void Exposition::end(uint64_t value) {
  const fmt::format_int digits(value);
  text_.append(digits.data(), digits.size()).append("\n");
}

void Exposition::end_ns(uint64_t value_ns) {
  constexpr uint64_t kSecondNs = 1'000'000'000;
  const fmt::format_int seconds(value_ns / kSecondNs);
  // The one in front keeps the zeroes behind the point.
  const fmt::format_int rest(kSecondNs + value_ns % kSecondNs);
  text_.append(seconds.data(), seconds.size()).append(".");
  text_.append(rest.data() + 1, rest.size() - 1).append("\n");
}

void Exposition::sample(const Labels& labels, uint64_t value) {
  begin("", labels);
  end(value);
}

void Exposition::sample_ns(const Labels& labels, uint64_t value_ns) {
  begin("", labels);
  end_ns(value_ns);
}

void Exposition::histogram(const Labels& labels, std::span<const CumulativeBucket> below,
                           uint64_t count, uint64_t sum_ns) {
  for (const CumulativeBucket& bucket : below) {
    begin("_bucket", labels, bucket.le);
    end(bucket.count);
  }
  begin("_bucket", labels, "+Inf");
  end(count);
  begin("_sum", labels);
  end_ns(sum_ns);
  begin("_count", labels);
  end(count);
}

}  // namespace braid::cli
