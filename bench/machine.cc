#include "bench/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "bench/ping_pong.h"
#include "bench/stats.h"

namespace braid::bench {
namespace {

std::string read_file(const char* path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string cpu_model() {
  std::istringstream lines(read_file("/proc/cpuinfo"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

// The eight first numbers of a line of /proc/stat, added to `times`:
// user nice system idle iowait irq softirq steal (guest time is part of user).
base::Status add_cpu_times(std::string_view line, CpuTimes& times) {
  std::array<uint64_t, 8> fields{};
  const char* at = line.data();
  const char* const end = at + line.size();
  for (uint64_t& field : fields) {
    while (at != end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, field);
    if (error != std::errc()) {
      return base::make_error(base::Errc::kInvalid, "/proc/stat: fewer than {} numbers in \"{}\"",
                              fields.size(), line);
    }
    at = next;
  }
  times.idle += fields[3] + fields[4];
  times.stolen += fields[7];
  for (const uint64_t field : fields) times.total += field;
  return base::ok_status();
}

}  // namespace

base::Result<std::vector<int>> parse_cpu_list(std::string_view list) {
  std::vector<int> cpus;
  const char* at = list.data();
  const char* end = at + list.size();
  while (end != at && end[-1] == '\n') --end;
  for (bool more = true; more;) {
    unsigned first = 0;
    auto parsed = std::from_chars(at, end, first);
    unsigned last = first;
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    more = parsed.ptr != end && *parsed.ptr == ',';
    if (parsed.ec != std::errc() || last < first || last >= CPU_SETSIZE ||
        (!more && parsed.ptr != end)) {
      return base::make_error(base::Errc::kInvalid, "\"{}\" is no list of CPUs like 0-2,5", list);
    }
    for (unsigned cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    if (more) at = parsed.ptr + 1;
  }
  return cpus;
}

std::vector<int> siblings_of(int cpu) {
  const std::string path =
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu);
  auto siblings = parse_cpu_list(read_file(path.c_str()));
  return siblings.ok() ? std::move(siblings).value() : std::vector<int>{cpu};
}

Cpus choose_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  BRAID_ASSERT(sched_getaffinity(0, sizeof set, &set) == 0);
  std::vector<int> usable;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) usable.push_back(cpu);
  }
  Cpus cpus{.client = usable.front(), .server = usable.front()};
  for (auto cpu = usable.rbegin(); cpu != usable.rend(); ++cpu) {
    const Cpus candidate{.client = cpus.client, .server = *cpu};
    if (*cpu == cpus.client) continue;
    if (cpus.server == cpus.client || !share_a_core(candidate) || share_a_core(cpus)) {
      cpus = candidate;
    }
  }
  return cpus;
}

bool share_a_core(const Cpus& cpus) {
  const std::vector<int> siblings = siblings_of(cpus.client);
  return std::find(siblings.begin(), siblings.end(), cpus.server) != siblings.end();
}

std::vector<int> cpus_to_watch(const Cpus& cpus) {
  std::vector<int> watched = siblings_of(cpus.client);
  const std::vector<int> others = siblings_of(cpus.server);
  watched.insert(watched.end(), others.begin(), others.end());
  std::sort(watched.begin(), watched.end());
  watched.erase(std::unique(watched.begin(), watched.end()), watched.end());
  return watched;
}

std::vector<int> cpus_of(const Cpus& cpus, Placement placement) {
  if (placement == Placement::kServer) return {cpus.server};
  return {cpus.client, cpus.server};
}

void pin_to(int cpu) {
  pin_to({&cpu, 1});
}

void pin_to(std::span<const int> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  BRAID_ASSERT(sched_setaffinity(0, sizeof set, &set) == 0);
}

base::Result<CpuTimes> parse_cpu_times(std::string_view proc_stat, std::span<const int> cpus) {
  CpuTimes times;
  for (const int cpu : cpus) {
    const std::string start = fmt::format("\ncpu{} ", cpu);
    const size_t at = proc_stat.find(start);
    if (at == std::string_view::npos) {
      return base::make_error(base::Errc::kInvalid, "/proc/stat has no line of cpu{}", cpu);
    }
    const std::string_view line = proc_stat.substr(at + start.size());
    BRAID_CHECK(add_cpu_times(line.substr(0, line.find('\n')), times));
  }
  return times;
}

double idle_fraction(const CpuTimes& before, const CpuTimes& after) {
  if (after.total <= before.total) return 1;
  return static_cast<double>(after.idle - before.idle) /
         static_cast<double>(after.total - before.total);
}

double measure_cache_line_ns(const Cpus& cpus, unsigned round_trips) {
  constexpr unsigned kBatches = 9;
  PingPong lines;
  const uint32_t last = kBatches * round_trips;
  cpu_set_t before;
  BRAID_ASSERT(sched_getaffinity(0, sizeof before, &before) == 0);
  std::thread answerer([&] {
    pin_to(cpus.server);
    answer_pings(lines, last);
  });
  pin_to(cpus.client);
  std::vector<double> one_way_ns;
  uint32_t i = 0;
  for (unsigned batch = 0; batch < kBatches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (unsigned k = 0; k < round_trips; ++k) send_ping(lines, ++i);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    one_way_ns.push_back(took.count() / round_trips / 2);
  }
  answerer.join();
  BRAID_ASSERT(sched_setaffinity(0, sizeof before, &before) == 0);
  return summarise(one_way_ns)->median;
}

base::Result<Observation> observe(const Interrupts& interrupts, const Cpus& cpus,
                                  const GateOptions& options) {
  const std::string before = read_file("/proc/stat");
  BRAID_CHECK(interrupts.pause_ms(options.window_ms));
  const std::string after = read_file("/proc/stat");
  Observation seen{.idle = true};
  for (const int cpu : cpus_to_watch(cpus)) {
    BRAID_TRY(const CpuTimes times_before, parse_cpu_times(before, {{cpu}}));
    BRAID_TRY(const CpuTimes times_after, parse_cpu_times(after, {{cpu}}));
    seen.idle = seen.idle && idle_fraction(times_before, times_after) >= options.idle_min;
  }
  if (!seen.idle) return seen;
  // One slow batch is a passing matter; a slow line stays slow.
  for (unsigned i = 0; i < options.cache_line_tries && !quiet(seen, options); ++i) {
    seen.cache_line_ns = measure_cache_line_ns(cpus, options.round_trips);
  }
  return seen;
}

nlohmann::json machine_facts(const Cpus& cpus) {
  utsname names{};
  uname(&names);
  const uint64_t memory_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {{"kernel", names.release},
          {"architecture", names.machine},
          {"cpus", sysconf(_SC_NPROCESSORS_ONLN)},
          {"cpu_model", cpu_model()},
          {"client_cpu", cpus.client},
          {"server_cpu", cpus.server},
          {"one_core", share_a_core(cpus)},
          {"memory_mib", memory_bytes >> 20}};
}

double load_1m() {
  double load = 0;
  getloadavg(&load, 1);
  return load;
}

}  // namespace braid::bench
