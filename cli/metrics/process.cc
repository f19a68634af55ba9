#include <dirent.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "cli/metrics/sample.h"

namespace braid::cli {

namespace {

uint64_t ns_of(const timeval& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(time.tv_usec) * 1'000;
}

uint64_t count_open_fds() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  uint64_t count = 0;
  while (const dirent* entry = ::readdir(folder))
    if (entry->d_name[0] != '.') ++count;
  ::closedir(folder);
  return count == 0 ? 0 : count - 1;  // but the folder's own
}

/// Fields of /proc/self/stat behind the program's name, which may contain anything; the first of
/// them is the third of proc(5).
struct Stat {
  uint64_t threads = 0;      // 20th
  uint64_t start_ticks = 0;  // 22nd, since boot
};
Stat read_stat() {
  std::string text;
  std::getline(std::ifstream("/proc/self/stat"), text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 20; ++field) fields >> skipped;
  Stat stat;
  fields >> stat.threads >> skipped >> stat.start_ticks;
  return stat;
}

uint64_t boot_time_s() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("btime ")) return std::stoull(line.substr(6));
  return 0;
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total_pages = 0, resident_pages = 0;
  file >> total_pages >> resident_pages;
  return resident_pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

ProcessSample sample_process() {
  ProcessSample sample;
  sample.pid = static_cast<uint64_t>(::getpid());
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    sample.cpu_user_ns = ns_of(usage.ru_utime);
    sample.cpu_system_ns = ns_of(usage.ru_stime);
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) sample.max_fds = limit.rlim_cur;
  const Stat stat = read_stat();
  sample.threads = stat.threads;
  sample.started_s =
      boot_time_s() + stat.start_ticks / static_cast<uint64_t>(::sysconf(_SC_CLK_TCK));
  sample.resident_bytes = resident_bytes();
  sample.heap_bytes = ::mallinfo2().uordblks;
  sample.open_fds = count_open_fds();
  return sample;
}

}  // namespace braid::cli
