#include "tests/sim/replay_note.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

// Weak: there in sanitizer builds only.
// NOLINTNEXTLINE(readability-identifier-naming): the sanitizers' name
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace braid::sim {
namespace {

// For a signal handler: made beforehand, no allocation.
std::array<char, 512> g_text;
volatile sig_atomic_t g_length = 0;

void say() {
  if (g_length == 0) return;
  const ssize_t written = write(STDERR_FILENO, g_text.data(), static_cast<size_t>(g_length));
  (void)written;
  g_length = 0;
}

void on_signal(int number) {
  if (number == SIGPROF) {
    static constexpr char kEndless[] = "this run does not end by itself\n";
    const ssize_t written = write(STDERR_FILENO, kEndless, sizeof kEndless - 1);
    (void)written;
  }
  say();
  signal(number == SIGPROF ? SIGABRT : number, SIG_DFL);
  raise(number == SIGPROF ? SIGABRT : number);
}

void limit_cpu_time(unsigned seconds) {
  itimerval timer{};
  timer.it_value.tv_sec = seconds;
  setitimer(ITIMER_PROF, &timer, nullptr);
}

void install_once() {
  static const bool kInstalled = [] {
    const bool sanitized = __sanitizer_set_death_callback != nullptr;
    if (sanitized) __sanitizer_set_death_callback(&say);
    for (const int number : {SIGABRT, SIGPROF}) signal(number, &on_signal);
    // A sanitizer has more to tell about these than we, and calls us at its end.
    if (!sanitized)
      for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, &on_signal);
    return true;
  }();
  (void)kInstalled;
}

}  // namespace

ReplayNote::ReplayNote(std::string_view command, unsigned cpu_seconds_max) {
  static constexpr std::string_view kBegin = "replay: ";
  g_length = 0;
  const size_t length = std::min(command.size(), g_text.size() - kBegin.size() - 1);
  std::memcpy(g_text.data(), kBegin.data(), kBegin.size());
  std::memcpy(g_text.data() + kBegin.size(), command.data(), length);
  g_text[kBegin.size() + length] = '\n';
  g_length = static_cast<sig_atomic_t>(kBegin.size() + length + 1);
  install_once();
  limit_cpu_time(cpu_seconds_max);
}

ReplayNote::~ReplayNote() {
  limit_cpu_time(0);
  g_length = 0;
}

}  // namespace braid::sim
