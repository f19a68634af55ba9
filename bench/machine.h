// The machine during a measurement: what it is, whether it is quiet, and what one cache line costs
// between the two CPUs in use. Without this gate the same peer was seen to vary fourfold.
//
// Main thread, with no other thread running.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"
#include "bench/interrupts.h"

namespace braid::bench {

/// The CPUs of a measurement: the side that asks and the side that answers.
struct Cpus {
  int client = 0;
  int server = 1;
};

/// The first two CPUs that this process may use; the same one twice if there is only one.
Cpus choose_cpus();

/// Binds the calling thread. Aborts on a CPU that choose_cpus() did not give.
void pin_to(int cpu);

/// Time of one CPU since boot, in clock ticks, from its line of /proc/stat.
struct CpuTimes {
  uint64_t idle = 0;
  uint64_t total = 0;
  uint64_t stolen = 0;  // by the hypervisor
};
/// kInvalid: not the text of /proc/stat.
base::Result<CpuTimes> parse_cpu_times(std::string_view proc_stat, int cpu);

/// 0..1; 1 when no time passed.
double idle_fraction(const CpuTimes& before, const CpuTimes& after);

struct GateOptions {
  double idle_min = 0.92;
  int window_ms = 300;
  int wait_max_ms = 10'000;
  double cache_line_max_ns = 150;  // one way
  unsigned round_trips = 5'000;    // of the cache line, in each of nine batches
};

/// The machine just before a run.
struct Observation {
  bool idle = false;         // the machine became idle within the bound
  double cache_line_ns = 0;  // one way
};

/// Whether figures taken after this may count.
inline bool quiet(const Observation& seen, const GateOptions& options) {
  return seen.idle && seen.cache_line_ns <= options.cache_line_max_ns;
}

/// Half the round trip of a cache line between two pinned threads: the median of nine batches of
/// `round_trips`.
double measure_cache_line_ns(const Cpus& cpus, unsigned round_trips);

/// Waits until the two CPUs are idle and their cache line is fast, or the bound has passed.
base::Result<Observation> observe(const Interrupts& interrupts, const Cpus& cpus,
                                  const GateOptions& options);

/// {kernel, cpus, cpu_model, client_cpu, server_cpu, memory_mib}.
nlohmann::json machine_facts(const Cpus& cpus);
double load_1m();

}  // namespace braid::bench
