#include "cli/verbs/program.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <string_view>

#include "base/linux_host.h"
#include "base/result.h"

namespace braid::cli {

int run_program(int argc, char** argv, int (*work)(Context& context, int argc, char** argv),
                const BraiddParts& parts) {
  ::signal(SIGPIPE, SIG_IGN);
  base::raise_descriptor_limit();
  Context context{.parts = &parts, .arguments = argv};
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
