// What every side of the block rows does: reads or writes of a store full of random bytes; and the
// sizes of a full and of a quick run.
//
// Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <vector>

#include "bench/rounds.h"

namespace braid::bench {

inline constexpr size_t kBlockBytes = 4096;

/// The operations of a job: all of one kind and length, so many at a time.
struct BlockWork {
  bool write = false;       // else reads
  bool sequential = false;  // else at random, anywhere in the store
  uint32_t block_bytes = kBlockBytes;
  unsigned depth = 1;
};
/// "4 KiB random read, depth 1".
std::string to_string(const BlockWork& work);
/// What a row of such operations counts: "MiB/s" of those of a MiB and more, else "IOPS".
std::string unit_of(const BlockWork& work);
double in_unit_of(const BlockWork& work, double per_second);

struct BlockWorkload {
  uint64_t store_bytes = 0;  // a multiple of kFillBytes; large enough that the cache holds little
  unsigned run_ms = 0;       // of the pass that counts operations
  unsigned latency_ms = 0;   // of the pass that times each: a time stamp costs about 3 %
};
inline BlockWorkload block_workload(const Options& options) {
  if (options.quick) return {.store_bytes = 16 << 20, .run_ms = 10, .latency_ms = 5};
  if (options.brief) return {.store_bytes = 256 << 20, .run_ms = 300, .latency_ms = 50};
  return {.store_bytes = 1 << 30, .run_ms = 2000, .latency_ms = 500};
}

/// A short random sequence (splitmix64): the same for the same seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// Below `bound` (not 0), which is far below 2^32.
  uint64_t below(uint64_t bound) { return ((next() >> 32) * bound) >> 32; }

 private:
  uint64_t state_;
};

/// Fills with random bytes; a size in multiples of 8.
void fill_random(std::span<std::byte> bytes, uint64_t seed);

/// A store is filled in pieces of this size, each with fill_random(piece, its offset).
inline constexpr size_t kFillBytes = 1 << 20;
/// Whether `block` is what such a store holds at `offset_bytes`. `block` lies in one piece.
bool is_of_store(std::span<const std::byte> block, uint64_t offset_bytes);

/// Loads a word of each cache line, as a program does that uses what it read: until then the lines
/// are in the cache of whoever wrote them. fio's engines get theirs by a copy of the kernel's.
inline void use(std::span<const std::byte> block) {
  constexpr size_t kLineBytes = 64;
  for (size_t at = 0; at < block.size(); at += kLineBytes) {
    (void)*reinterpret_cast<const volatile uint64_t*>(block.data() + at);
  }
}

/// Stores a word in each cache line, as a program does that has something to write.
inline void make(std::span<std::byte> block, uint64_t word) {
  constexpr size_t kLineBytes = 64;
  for (size_t at = 0; at < block.size(); at += kLineBytes) {
    *reinterpret_cast<volatile uint64_t*>(block.data() + at) = word;
  }
}

/// The most operations that a pass times: above what one can do, so that nothing is copied.
inline constexpr size_t kTimedMax = size_t{1} << 21;
/// Empty, with memory for `count` whose pages are there: a fault per page would show in p99.9.
void reserve_touched(std::vector<uint64_t>& values, size_t count);

/// Operations one after another: counts them for a time, or times each of them.
class Pass {
 public:
  /// `operation()` does one and returns when it is done. Operations per second.
  template <typename Operation>
  static double count(unsigned duration_ms, Operation&& operation);
  /// Each one's duration.
  template <typename Operation>
  static Latencies time(unsigned duration_ms, Operation&& operation);
};

/// Now, ns, for intervals.
uint64_t clock_ns();

template <typename Operation>
double Pass::count(unsigned duration_ms, Operation&& operation) {
  constexpr unsigned kPerLook = 64;
  const uint64_t start_ns = clock_ns();
  const uint64_t end_ns = start_ns + duration_ms * uint64_t{1'000'000};
  uint64_t operations = 0, now_ns = start_ns;
  while (now_ns < end_ns) {
    for (unsigned i = 0; i < kPerLook; ++i) operation();
    operations += kPerLook;
    now_ns = clock_ns();
  }
  return static_cast<double>(operations) * 1e9 / static_cast<double>(now_ns - start_ns);
}

template <typename Operation>
Latencies Pass::time(unsigned duration_ms, Operation&& operation) {
  std::vector<uint64_t> durations_ns;
  reserve_touched(durations_ns, kTimedMax);
  uint64_t now_ns = clock_ns();
  const uint64_t end_ns = now_ns + duration_ms * uint64_t{1'000'000};
  while (now_ns < end_ns && durations_ns.size() < durations_ns.capacity()) {
    operation();
    const uint64_t done_ns = clock_ns();
    durations_ns.push_back(done_ns - now_ns);
    now_ns = done_ns;
  }
  return latencies(durations_ns);
}

/// CPU time of some processes.
class CpuMeter {
 public:
  /// This process and `others`, which belong to the same user.
  explicit CpuMeter(std::vector<pid_t> others = {});
  /// Since the construction, ns. A process that is gone counts for nothing.
  uint64_t used_ns() const { return total_ns() - start_ns_; }

 private:
  uint64_t total_ns() const;
  std::vector<clockid_t> clocks_;
  uint64_t start_ns_;
};

/// Counts and times operations; `server` is the process that answers them.
template <typename Operation>
Sample measure_operations(unsigned run_ms, unsigned latency_ms, pid_t server,
                          Operation&& operation) {
  const CpuMeter meter({server});
  Sample sample{.value = Pass::count(run_ms, operation)};
  sample.cpu_ns = static_cast<double>(meter.used_ns()) / (sample.value * run_ms / 1000);
  sample.latencies = Pass::time(latency_ms, operation);
  return sample;
}

/// Of messages one way from round trips: half of all times, operations per second to ns each.
Sample one_way(const Sample& round_trips);

/// How a sample travels from a measuring child.
nlohmann::json to_json(const Sample& sample);
base::Result<Sample> sample_from_json(const nlohmann::json& message);

}  // namespace braid::bench
