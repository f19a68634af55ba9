#include "cli/verbs/program.h"

#include <signal.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <string_view>

#include "base/result.h"

namespace braid::cli {

namespace {

/// As many descriptors as the administrator lets this process have. The usual soft limit of 1024 is
/// for programs that use select(), which Braid does not; a connection over TCP takes two.
void raise_descriptor_limit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  [[maybe_unused]] const int failed = ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int run_program(int argc, char** argv, int (*work)(Context& context, int argc, char** argv)) {
  ::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit();
  Context context;
  // Already now: an error in what stands before the option leaves it unread.
  context.json =
      std::any_of(argv + 1, argv + argc, [](std::string_view word) { return word == "--json"; });
  try {
    return work(context, argc, argv);
  } catch (const std::exception& escaped) {
    report(context,
           base::make_error(base::Errc::kProtocol, "an unexpected failure: {}", escaped.what()));
    return context.exit_code;
  }
}

int refuse_usage(CLI::App& app, Context& context, const CLI::ParseError& wrong) {
  if (context.json)
    report(context, base::Error(base::Errc::kInvalid, wrong.what()), kUsage);
  else
    app.exit(wrong);
  return kUsage;
}

}  // namespace braid::cli
