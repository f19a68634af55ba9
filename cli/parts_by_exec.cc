#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "cli/braidd_parts.h"

namespace braid::cli {

namespace {

namespace fs = std::filesystem;

void become(Context& context) {
  std::error_code unreadable;
  const fs::path here = fs::read_symlink("/proc/self/exe", unreadable);
  if (unreadable)  // or a braidd of the working directory would be run
    return report(context, base::sys_error(unreadable.value(), "/proc/self/exe")
                               .with("this verb is in braidd, which is looked for beside braid"));
  const fs::path program = here.parent_path() / "braidd";
  static std::string name(kCalledForBraid);  // it stays so if the call fails
  context.arguments[0] = name.data();
  ::execv(program.c_str(), context.arguments);
  const int why = errno;
  report(context, base::sys_error(why, program.string())
                      .with("this verb is in braidd, which belongs beside {}", here.string()));
}

template <typename... Arguments>
void become_braidd(Context& context, Arguments... /*braidd reads them anew*/) {
  become(context);
}

}  // namespace

const BraiddParts& parts_by_exec() {
  static constexpr BraiddParts kParts{&become_braidd, &become_braidd, &become_braidd,
                                      &become_braidd, &become_braidd, &become_braidd,
                                      &become_braidd};
  return kParts;
}

}  // namespace braid::cli
