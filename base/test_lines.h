// The lines of a log, as tests of one thread look at them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace braid::base {

class TestLines final : public LogSink {
 public:
  void write(LogLevel, std::string_view, std::string_view message) override {
    all.emplace_back(message);
  }
  /// How many have these words.
  size_t with(std::string_view words) const {
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [words](const auto& line) {
      return line.find(words) != std::string::npos;
    }));
  }
  std::vector<std::string> all;
};

}  // namespace braid::base
