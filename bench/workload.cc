#include "bench/workload.h"

#include <chrono>
#include <cstring>

namespace braid::bench {

void fill_random(std::span<std::byte> bytes, uint64_t seed) {
  Random random(seed);
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random.next();
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
}

std::vector<uint64_t> reserve_touched(size_t count) {
  std::vector<uint64_t> values(count, 1);
  values.clear();
  return values;
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
