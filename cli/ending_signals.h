// The signals that ask a node to end, as something to wait for. Private to cli/foreground.cc.
//
// Threads: made before any other thread, which inherits the blocked signals; used by the main one.
#pragma once

#include <signal.h>

#include "cli/control_socket.h"

namespace braid::cli {

class EndingSignals {
 public:
  /// Blocks SIGINT, SIGTERM and SIGHUP, but for those that this process was started to ignore: a
  /// blocked signal would be told though it is ignored. Without `hangup`, SIGHUP is ignored too.
  explicit EndingSignals(bool hangup);
  /// Readable when a signal waits.
  int fd() const { return fd_.get(); }
  /// Waits for one.
  void wait() const;
  /// Likewise, so long at most. False: none came.
  bool wait_ms(int timeout_ms) const;
  /// Forgets those that came already. True if there were any.
  bool drain() const;
  /// Until block(), a signal ends the process, as if nobody had asked for anything else.
  void let_kill() const { ::pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr); }
  void block() const { ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr); }

 private:
  static sigset_t choose(bool hangup);
  const sigset_t signals_;
  const Fd fd_;
};

}  // namespace braid::cli
