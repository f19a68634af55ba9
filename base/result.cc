#include "base/result.h"

#include <fmt/format.h>
#include <poll.h>    // lint: allow(os) a panic depends on nothing
#include <unistd.h>  // lint: allow(os) same

#include <algorithm>
#include <array>
#include <cstdlib>
#include <system_error>

namespace braid::base {

Error sys_error(int sys_errno, std::string_view what) {
  return Error(errc_from_errno(sys_errno),
               fmt::format("{}: {}", what, std::generic_category().message(sys_errno)));
}

void panic(const char* file, int line, const char* what) {
  // Straight to stderr: a logger may be what is broken, and stdio's lock may be held by a thread
  // that is stuck in a write. A terminal or pipe that takes nothing must not keep the process.
  std::array<char, 1000> text{};
  const auto end = fmt::format_to_n(text.data(), text.size(),
                                    "{}:{}: Braid stops, this must hold: {}\n", file, line, what);
  pollfd out{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&out, 1, 1000) == 1 &&
      ::write(out.fd, text.data(), std::min(end.size, text.size())) < 0) {
    // There is nowhere to say so.
  }
  std::abort();
}

}  // namespace braid::base
