// SimMedium: what several simulated files have in common when they lie on one disk: its bandwidth.
//
//   kAsTheyCome  one queue: who asks for most has most
//   kByFile      files that have something to do have equal parts, whatever each asks for
//
// One thread: the world's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid::base::sim {

class SimMedium {
 public:
  enum class Order : uint8_t { kAsTheyCome, kByFile };
  SimMedium(Order order, uint64_t bytes_per_us, uint64_t each_ns)
      : order_(order), bytes_per_us_(bytes_per_us), each_ns_(each_ns) {}

  /// One more file lies on it; its number.
  size_t add_file() {
    busy_until_ns_.push_back(0);
    return busy_until_ns_.size() - 1;
  }
  /// What it costs to move so much, if nobody else is there.
  uint64_t cost_ns(uint64_t bytes) const { return each_ns_ + bytes * 1000 / bytes_per_us_; }
  /// When so much of a file will have been moved that is asked for now.
  uint64_t moved_at(size_t file, uint64_t now_ns, uint64_t bytes) {
    uint64_t& until_ns = busy_until_ns_[order_ == Order::kByFile ? file : 0];
    until_ns = std::max(until_ns, now_ns);
    const auto others =
        std::count_if(busy_until_ns_.begin(), busy_until_ns_.end(),
                      [&](const uint64_t& each) { return &each != &until_ns && each > now_ns; });
    until_ns += cost_ns(bytes) * (1 + static_cast<uint64_t>(others));
    return until_ns;
  }

 private:
  const Order order_;
  const uint64_t bytes_per_us_;
  const uint64_t each_ns_;               // of an operation, however short
  std::vector<uint64_t> busy_until_ns_;  // by file; in one queue only the first counts
};

}  // namespace braid::base::sim
