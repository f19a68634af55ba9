#include "bench/profile/stepper.h"

#include <dlfcn.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <exception>
#include <set>
#include <string>

namespace {

/// While each instruction is looked at an I/O takes seconds: with the clock going it would be time
/// for heartbeats, and for sleep, again and again.
bool time_stands_still = false;

}  // namespace

/// Of the whole program.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {  // NOLINT: libc's
  // The C library's, which on most machines needs no system call.
  static const auto kReal =
      reinterpret_cast<int (*)(clockid_t, timespec*)>(::dlsym(RTLD_NEXT, "clock_gettime"));
  static timespec last{};
  if (!time_stands_still && kReal(clock, time) != 0) return -1;
  if (!time_stands_still) last = *time;
  *time = last;
  return 0;
}

namespace braid::bench {

void stop_clock() {
  time_stands_still = true;
}

namespace {

#if defined(__x86_64__)

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

constexpr uint8_t kBreakpoint = 0xcc;
constexpr int kNotTraced = 77;  // exit code of a child

[[gnu::noinline]] void mark() {
  static bool counting = false;
  counting = !counting;
  time_stands_still = true;
  asm volatile("int3");
  time_stands_still = counting;
}

/// Functions of the C library, where this process, and so its child, has them.
std::set<uint64_t> addresses_of(std::initializer_list<const char*> names) {
  std::set<uint64_t> found;
  for (const char* name : names) {
    if (void* const at = ::dlsym(RTLD_DEFAULT, name)) found.insert(reinterpret_cast<uint64_t>(at));
  }
  return found;
}

/// What one instruction is, as far as it matters here.
struct Instruction {
  bool locked = false;
  bool system_call = false;
};
Instruction decode(const uint8_t* at) {
  Instruction one;
  for (;; ++at) {
    const bool segment =
        *at == 0x26 || *at == 0x2e || *at == 0x36 || *at == 0x3e || *at == 0x64 || *at == 0x65;
    const bool other = *at == 0x66 || *at == 0x67 || *at == 0xf2 || *at == 0xf3;
    one.locked = one.locked || *at == 0xf0;
    if (!segment && !other && *at != 0xf0) break;
  }
  if ((*at & 0xf0) == 0x40) ++at;  // REX
  one.system_call = at[0] == 0x0f && at[1] == 0x05;
  // XCHG with memory locks without the prefix.
  if ((at[0] == 0x86 || at[0] == 0x87) && at[1] >> 6 != 3) one.locked = true;
  return one;
}

class Stepper {
 public:
  explicit Stepper(pid_t child) : child_(child) {}

  Result<Steps> run() {
    BRAID_CHECK(wait());  // for the first mark
    Steps steps;
    uint64_t last = 0;
    for (;;) {
      BRAID_TRY(const uint64_t at, position());
      // The child is a copy of this process: its code is ours.
      const auto* const code = reinterpret_cast<const uint8_t*>(at);
      if (*code == kBreakpoint) {
        BRAID_CHECK(skip_to(at + 1));
        break;
      }
      // A string instruction that repeats stops at each turn, and is one.
      const bool repeats = at == last;
      last = at;
      const Instruction one = decode(code);
      steps.instructions += repeats ? 0 : 1;
      steps.system_calls += one.system_call ? 1 : 0;
      steps.locked += one.locked ? 1 : 0;
      steps.mutexes += mutexes_.contains(at) ? 1 : 0;
      steps.allocations += allocations_.contains(at) ? 1 : 0;
      BRAID_CHECK(go(PTRACE_SINGLESTEP));
    }
    return steps;
  }

 private:
  Status go(__ptrace_request how) const {
    if (::ptrace(how, child_, nullptr, nullptr) != 0) return base::sys_error(errno, "ptrace");
    return wait();
  }
  Status wait() const {
    int status = 0;
    if (::waitpid(child_, &status, 0) != child_) return base::sys_error(errno, "waitpid");
    if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP) return {};
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNotTraced)
      return make_error(Errc::kNotSupported, "no process may be traced here");
    return make_error(Errc::kIo, "the process that is looked at has ended or failed: {:#x}",
                      status);
  }
  Status skip_to(uint64_t at) const {
    user_regs_struct registers{};
    if (::ptrace(PTRACE_GETREGS, child_, nullptr, &registers) == 0) {
      registers.rip = at;
      if (::ptrace(PTRACE_SETREGS, child_, nullptr, &registers) == 0) return {};
    }
    return base::sys_error(errno, "ptrace");
  }
  Result<uint64_t> position() const {
    user_regs_struct registers{};
    if (::ptrace(PTRACE_GETREGS, child_, nullptr, &registers) != 0)
      return base::sys_error(errno, "ptrace");
    return registers.rip;
  }

  const pid_t child_;
  const std::set<uint64_t> mutexes_ =
      addresses_of({"pthread_mutex_lock", "pthread_mutex_trylock", "pthread_rwlock_wrlock",
                    "pthread_rwlock_rdlock", "pthread_rwlock_trywrlock", "pthread_rwlock_tryrdlock",
                    "pthread_spin_lock", "pthread_spin_trylock"});
  // C++'s, which a sanitizer has without malloc: new, new[], both aligned or without exceptions.
  const std::set<uint64_t> allocations_ = addresses_of(
      {"malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "memalign", "free",
       "_Znwm", "_Znam", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t", "_ZnwmRKSt9nothrow_t",
       "_ZnamRKSt9nothrow_t", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm"});
};

[[noreturn]] void be_looked_at(const std::function<uint64_t(void (*)())>& work, int result) {
  if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kNotTraced);
  try {
    const uint64_t told = work(&mark);
    ::_exit(::write(result, &told, sizeof told) == sizeof told ? 0 : 2);
  } catch (const std::exception& error) {
    const std::string line = std::string("count_steps: ") + error.what() + "\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(3);
  }
}

#endif

}  // namespace

#if defined(__x86_64__)

Result<Steps> count_steps(const std::function<uint64_t(void (*mark)())>& work) {
  int result[2];
  if (::pipe(result) != 0) return base::sys_error(errno, "pipe");
  const pid_t child = ::fork();
  if (child < 0) return base::sys_error(errno, "fork");
  if (child == 0) be_looked_at(work, result[1]);
  ::close(result[1]);
  Result<Steps> steps = Stepper(child).run();
  if (steps.ok()) (void)::ptrace(PTRACE_DETACH, child, nullptr, nullptr);
  if (!steps.ok()) ::kill(child, SIGKILL);
  const bool told = steps.ok() && ::read(result[0], &steps->result, sizeof(uint64_t)) == 8;
  ::close(result[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (steps.ok() && !told)
    return make_error(Errc::kIo, "the process that is looked at told nothing");
  return steps;
}

#else

base::Result<Steps> count_steps(const std::function<uint64_t(void (*mark)())>&) {
  return base::make_error(base::Errc::kNotSupported, "instructions are known of x86-64 only");
}

#endif

}  // namespace braid::bench
