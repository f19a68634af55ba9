#include "bench/interrupts.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

namespace braid::bench {

Interrupts::Interrupts() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGINT);
  sigaddset(&wanted, SIGTERM);
  BRAID_ASSERT(pthread_sigmask(SIG_BLOCK, &wanted, &before_) == 0);
  fd_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  BRAID_ASSERT(fd_ >= 0);
}

Interrupts::~Interrupts() {
  // A signal that nobody read would end the process here, after all is cleaned up.
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

base::Status Interrupts::pause_ms(int duration_ms) const {
  pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, duration_ms) > 0) {
    return base::make_error(base::Errc::kCanceled, "interrupted");
  }
  return base::ok_status();
}

void Interrupts::restore_in_child() const {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace braid::bench
