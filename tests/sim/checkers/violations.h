// Where checkers report what must not be. The first ones are kept in words, all are counted.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace braid::sim {

class Violations {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    ++count_;
    if (texts_.size() < kKeptMax)
      texts_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  uint64_t count() const { return count_; }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  static constexpr size_t kKeptMax = 20;
  uint64_t count_ = 0;
  std::vector<std::string> texts_;
};

}  // namespace braid::sim
