// The machine during a measurement: what it is, whether it is quiet, and what one cache line costs
// between the two CPUs in use. Without this gate the same peer was seen to vary fourfold.
//
// Main thread, with no other thread running.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/interrupts.h"

namespace braid::bench {

/// The CPUs of a measurement: the side that asks and the side that answers.
struct Cpus {
  int client = 0;
  int server = 1;
};

/// The numbers in a list of the kernel's, "0-2,5". kInvalid: other text.
base::Result<std::vector<int>> parse_cpu_list(std::string_view list);

/// The hardware threads of the core that has `cpu`, itself among them; just `cpu` where the kernel
/// does not say.
std::vector<int> siblings_of(int cpu);

/// The first CPU that this process may use, and the first of another core; else the second, else
/// the same one twice.
Cpus choose_cpus();
bool share_a_core(const Cpus& cpus);
/// `cpus` and their siblings: what must be idle for a measurement.
std::vector<int> cpus_to_watch(const Cpus& cpus);

/// Binds the calling thread to one CPU, or to some. Aborts on a CPU that choose_cpus() did not
/// give.
void pin_to(int cpu);
void pin_to(std::span<const int> cpus);

/// Where a program that answers runs: on the server's CPU, or on either, as the kernel chooses.
enum class Placement : uint8_t { kServer, kEither };
std::vector<int> cpus_of(const Cpus& cpus, Placement placement);

/// Time since boot, in clock ticks, of some CPUs together.
struct CpuTimes {
  uint64_t idle = 0;
  uint64_t total = 0;
  uint64_t stolen = 0;  // by the hypervisor
};
/// From the lines "cpuN" of /proc/stat. kInvalid: one of `cpus` has none that is right.
base::Result<CpuTimes> parse_cpu_times(std::string_view proc_stat, std::span<const int> cpus);

/// 0..1; 1 when no time passed.
double idle_fraction(const CpuTimes& before, const CpuTimes& after);

struct GateOptions {
  double idle_min = 0.92;
  int window_ms = 300;
  double cache_line_max_ns = 150;  // one way
  unsigned cache_line_tries = 5;   // until one is good
  unsigned round_trips = 5'000;    // of the cache line, in each of nine batches
};

/// The machine just before a run.
struct Observation {
  bool idle = false;         // over the window, the CPUs to watch
  double cache_line_ns = 0;  // one way; 0: not measured, as the CPUs were not idle
};

/// Whether figures taken after this may count.
inline bool quiet(const Observation& seen, const GateOptions& options) {
  return seen.idle && seen.cache_line_ns > 0 && seen.cache_line_ns <= options.cache_line_max_ns;
}

/// Half the round trip of a cache line between two pinned threads: the median of nine batches of
/// `round_trips`.
double measure_cache_line_ns(const Cpus& cpus, unsigned round_trips);

/// Looks once: for the length of the window, and then at the cache line.
base::Result<Observation> observe(const Interrupts& interrupts, const Cpus& cpus,
                                  const GateOptions& options);

/// {kernel, cpus, cpu_model, client_cpu, server_cpu, one_core, memory_mib}.
nlohmann::json machine_facts(const Cpus& cpus);
double load_1m();

}  // namespace braid::bench
