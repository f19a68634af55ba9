#include "cli/program.h"

#include <signal.h>

#include <exception>

#include "base/result.h"

namespace braid::cli {

int run_program(int argc, char** argv, int (*work)(Context& context, int argc, char** argv)) {
  ::signal(SIGPIPE, SIG_IGN);
  Context context;
  try {
    return work(context, argc, argv);
  } catch (const std::exception& escaped) {
    report(context,
           base::make_error(base::Errc::kProtocol, "an unexpected failure: {}", escaped.what()));
    return context.exit_code;
  }
}

}  // namespace braid::cli
