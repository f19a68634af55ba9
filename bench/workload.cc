#include "bench/workload.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace braid::bench {
namespace {

constexpr uint32_t kWorkloadMiB = 1 << 20;

}  // namespace

std::string to_string(const BlockWork& work) {
  const bool whole = work.block_bytes % kWorkloadMiB == 0;
  return fmt::format("{} {} {} {}, depth {}", work.block_bytes / (whole ? kWorkloadMiB : 1024),
                     whole ? "MiB" : "KiB", work.sequential ? "sequential" : "random",
                     work.write ? "write" : "read", work.depth);
}

std::string unit_of(const BlockWork& work) {
  return work.block_bytes >= kWorkloadMiB ? "MiB/s" : "IOPS";
}

double in_unit_of(const BlockWork& work, double per_second) {
  return work.block_bytes >= kWorkloadMiB ? per_second * work.block_bytes / kWorkloadMiB
                                          : per_second;
}

void fill_random(std::span<std::byte> bytes, uint64_t seed) {
  Random random(seed);
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random.next();
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
}

bool is_of_store(std::span<const std::byte> block, uint64_t offset_bytes) {
  const uint64_t in_piece = offset_bytes % kFillBytes;
  BRAID_ASSERT(in_piece + block.size() <= kFillBytes);
  std::vector<std::byte> piece(kFillBytes);
  fill_random(piece, offset_bytes - in_piece);
  return std::equal(block.begin(), block.end(), &piece[in_piece]);
}

void reserve_touched(std::vector<uint64_t>& values, size_t count) {
  values.assign(count, 1);
  values.clear();
}

uint64_t clock_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

CpuMeter::CpuMeter(std::vector<pid_t> others) {
  clocks_.push_back(CLOCK_PROCESS_CPUTIME_ID);
  for (const pid_t pid : others) {
    clockid_t clock{};
    if (clock_getcpuclockid(pid, &clock) == 0) clocks_.push_back(clock);
  }
  start_ns_ = total_ns();
}

uint64_t CpuMeter::total_ns() const {
  uint64_t total = 0;
  for (const clockid_t clock : clocks_) {
    timespec used{};
    if (clock_gettime(clock, &used) != 0) continue;
    total +=
        static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
  }
  return total;
}

Sample one_way(const Sample& round_trips) {
  Sample sample{.value = 1e9 / round_trips.value / 2};
  if (round_trips.latencies) {
    sample.latencies = Latencies{.p50_ns = round_trips.latencies->p50_ns / 2,
                                 .p99_ns = round_trips.latencies->p99_ns / 2,
                                 .p999_ns = round_trips.latencies->p999_ns / 2};
  }
  if (round_trips.cpu_ns) sample.cpu_ns = *round_trips.cpu_ns / 2;
  return sample;
}

nlohmann::json to_json(const Sample& sample) {
  nlohmann::json message{{"value", sample.value}};
  if (sample.latencies) {
    message["p50_ns"] = sample.latencies->p50_ns;
    message["p99_ns"] = sample.latencies->p99_ns;
    message["p999_ns"] = sample.latencies->p999_ns;
  }
  if (sample.cpu_ns) message["cpu_ns"] = *sample.cpu_ns;
  return message;
}

base::Result<Sample> sample_from_json(const nlohmann::json& message) {
  if (!message.is_object() || !message.contains("value") || !message["value"].is_number()) {
    return base::make_error(base::Errc::kIo, "a measuring process sent no value: {}",
                            message.dump());
  }
  Sample sample{.value = message["value"]};
  if (message.contains("p50_ns")) {
    sample.latencies = Latencies{.p50_ns = message.at("p50_ns"),
                                 .p99_ns = message.at("p99_ns"),
                                 .p999_ns = message.at("p999_ns")};
  }
  if (message.contains("cpu_ns")) sample.cpu_ns = message.at("cpu_ns").get<double>();
  return sample;
}

}  // namespace braid::bench
