// A terminal that shows one page after the other and is as it was afterwards.
#pragma once

#include <signal.h>
#include <termios.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/control_socket.h"

namespace braid::cli {

/// What has happened while a page was shown.
enum class TerminalEvent : uint8_t { kTimeout, kKey, kUp, kDown, kResized, kReady, kEnd };

/// Signals that end a program, and waiting for them: without a terminal, too. Make it before other
/// threads start: they are to leave these signals alone.
class TopSignals {
 public:
  TopSignals();
  ~TopSignals();  // as they were
  TopSignals(const TopSignals&) = delete;
  TopSignals& operator=(const TopSignals&) = delete;
  int fd() const { return fd_.get(); }
  /// The one that waits; 0: none.
  int take() const;
  /// Waits for so long at most; the signal, or 0. SIGWINCH is none.
  int wait_ms(int timeout_ms) const;

 private:
  sigset_t before_{};
  Fd fd_;
};

class Terminal {
 public:
  /// Takes the terminal of stdin and stdout: keys come at once, unseen, and pages go to a screen of
  /// their own. `signals` outlives it.
  explicit Terminal(const TopSignals& signals);
  ~Terminal();  // gives it back
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  size_t width() const;
  size_t height() const;
  void show(const std::string& page);
  /// kEnd: a signal to end, or the terminal has gone. kKey: `key` is it. kReady: there is something
  /// to read from `other_fd`.
  TerminalEvent wait_ms(int timeout_ms, int other_fd, char& key);

 private:
  static void write_all(const std::string& text);
  const TopSignals& signals_;
  bool raw_ = false;
  termios before_{};
};

}  // namespace braid::cli
