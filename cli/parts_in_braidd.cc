#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/braidd_parts.h"

namespace braid::cli {

namespace {

template <typename... Arguments>
void become_braidd(Context& context, Arguments... /*braidd reads them anew*/) {
  std::error_code unknown;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::filesystem::path program = here.parent_path() / "braidd";
  static char as_whom[] = "braid";  // its main looks at it
  context.arguments[0] = as_whom;
  ::execv(program.c_str(), context.arguments);
  report(context, base::make_error(base::Errc::kNotFound,
                                   "{}: {}; what serves and maps is in this program, which belongs "
                                   "beside {}",
                                   program.string(), std::strerror(errno), here.string()));
}

}  // namespace

const BraiddParts& parts_in_braidd() {
  static constexpr BraiddParts parts{&become_braidd, &become_braidd, &become_braidd, &become_braidd,
                                     &become_braidd, &become_braidd, &become_braidd};
  return parts;
}

}  // namespace braid::cli
