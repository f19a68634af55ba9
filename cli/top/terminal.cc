#include "cli/top/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>

namespace braid::cli {

namespace {

/// Those that end a program, and that the terminal has another size.
sigset_t taken_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int one : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) sigaddset(&signals, one);
  return signals;
}

int make_signal_fd() {
  const sigset_t signals = taken_signals();
  return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

TopSignals::TopSignals() : fd_(make_signal_fd()) {
  BRAID_ASSERT(fd_.get() >= 0);  // fails for want of descriptors only, and this is the first
  const sigset_t signals = taken_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

TopSignals::~TopSignals() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int TopSignals::take() const {
  signalfd_siginfo one{};
  if (::read(fd_.get(), &one, sizeof one) != sizeof one) return 0;
  return static_cast<int>(one.ssi_signo);
}

int TopSignals::wait_ms(int timeout_ms) const {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    pollfd look{fd_.get(), POLLIN, 0};
    if (left.count() <= 0) return 0;
    if (::poll(&look, 1, static_cast<int>(left.count())) <= 0) continue;
    if (const int signal = take(); signal != 0 && signal != SIGWINCH) return signal;
  }
}

Terminal::Terminal(const TopSignals& signals) : signals_(signals) {
  if (::tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    // Ctrl-Z would leave the terminal like this to whoever is next.
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    raw_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  }
  write_all("\x1b[?1049h\x1b[?25l");  // another screen, no cursor
}

Terminal::~Terminal() {
  write_all("\x1b[?25h\x1b[?1049l");
  if (raw_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void Terminal::write_all(const std::string& text) {
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // it has gone, which wait_ms() tells
    left.remove_prefix(static_cast<size_t>(n));
  }
}

size_t Terminal::width() const {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

size_t Terminal::height() const {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

void Terminal::show(const std::string& page) {
  std::string out = "\x1b[H";  // over the last page, so that nothing flickers
  for (size_t at = 0; at < page.size();) {
    const size_t end = std::min(page.find('\n', at), page.size());
    out.append(page, at, end - at).append("\x1b[K");
    if (end < page.size()) out += "\r\n";
    at = end + 1;
  }
  write_all(out + "\x1b[J");
}

TerminalEvent Terminal::wait_ms(int timeout_ms, int other_fd, char& key) {
  pollfd look[3] = {
      {signals_.fd(), POLLIN, 0}, {raw_ ? STDIN_FILENO : -1, POLLIN, 0}, {other_fd, POLLIN, 0}};
  if (::poll(look, 3, timeout_ms) <= 0) return TerminalEvent::kTimeout;
  if (look[0].revents != 0) {
    const int signal = signals_.take();
    if (signal == SIGWINCH) return TerminalEvent::kResized;
    return signal != 0 ? TerminalEvent::kEnd : TerminalEvent::kTimeout;
  }
  if (look[1].revents == 0) return TerminalEvent::kReady;
  char bytes[16];
  const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (n <= 0) return TerminalEvent::kEnd;
  const std::string_view typed(bytes, static_cast<size_t>(n));
  if (typed.starts_with("\x1b[A") || typed.starts_with("\x1bOA")) return TerminalEvent::kUp;
  if (typed.starts_with("\x1b[B") || typed.starts_with("\x1bOB")) return TerminalEvent::kDown;
  if (typed.front() == '\x1b') return TerminalEvent::kTimeout;  // another key, of several bytes
  key = typed.front();
  return TerminalEvent::kKey;
}

}  // namespace braid::cli
