#include "base/result.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace braid::base {

Error sys_error(int sys_errno, std::string_view what) {
  return Error(errc_from_errno(sys_errno),
               fmt::format("{}: {}", what, std::generic_category().message(sys_errno)));
}

void panic(const char* file, int line, const char* what) {
  // Straight to stderr: a logger may be what is broken.
  std::fprintf(stderr, "%s:%d: Braid stops, this must hold: %s\n", file, line, what);
  std::fflush(stderr);
  std::abort();
}

}  // namespace braid::base
