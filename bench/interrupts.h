// Ctrl-C and SIGTERM as a descriptor, so that everything unwinds and nothing is left behind.
//
// While an Interrupts lives the two signals are blocked in its thread and in threads started later;
// whoever waits for long uses pause_ms() or polls fd(). Linux only; the main thread's.
#pragma once

#include <csignal>

#include "base/result.h"

namespace braid::bench {

class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Readable once a signal came; it stays so.
  int fd() const { return fd_; }
  /// kCanceled once a signal came.
  base::Status check() const { return pause_ms(0); }
  /// Waits; kCanceled at once when a signal comes.
  base::Status pause_ms(int duration_ms) const;
  /// For a child between fork and its work: the signals end it as they end any process.
  void restore_in_child() const;

 private:
  int fd_ = -1;
  sigset_t before_{};
};

}  // namespace braid::bench
