#include "cli/ending_signals.h"

#include <poll.h>
#include <sys/signalfd.h>

#include "base/result.h"

namespace braid::cli {

EndingSignals::EndingSignals(bool hangup)
    : signals_(choose(hangup)), fd_(::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK)) {
  BRAID_ASSERT(fd_.get() >= 0);  // fails for want of descriptors only, and this is the first
  block();
}

sigset_t EndingSignals::choose(bool hangup) {
  if (!hangup) ::signal(SIGHUP, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    if (::sigaction(one, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&signals, one);
  }
  return signals;
}

void EndingSignals::wait() const {
  signalfd_siginfo one{};
  while (::read(fd_.get(), &one, sizeof one) != sizeof one) {
    pollfd look{fd_.get(), POLLIN, 0};
    ::poll(&look, 1, -1);
  }
}

bool EndingSignals::wait_ms(int timeout_ms) const {
  pollfd look{fd_.get(), POLLIN, 0};
  if (::poll(&look, 1, timeout_ms) <= 0) return false;
  wait();
  return true;
}

bool EndingSignals::drain() const {
  bool any = false;
  for (signalfd_siginfo one{}; ::read(fd_.get(), &one, sizeof one) == sizeof one;) any = true;
  return any;
}

}  // namespace braid::cli
