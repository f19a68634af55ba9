// `braid`: the one command that a person types.
#include <CLI/CLI.hpp>
#include <cstdlib>

#include "base/result.h"
#include "cli/verbs/program.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

namespace {

/// The first word, if it is no verb; CLI11 only says that one is missing.
std::string unknown_verb(CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return {};
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_name() == argv[1]) return {};
  }
  return argv[1];
}

}  // namespace

int run_braid(Context& context, int argc, char** argv) {
  if (const char* node = std::getenv("BRAID_CONTROL")) context.control_of_environment = node;
  CLI::App app("Remote block devices over RDMA, or over shared memory where there is none.",
               "braid");
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", std::string("braid ") + BRAID_VERSION);
  app.add_flag("--json", context.json, "print JSON instead of words and tables");
  app.add_option("--control", context.control,
                 "the node to talk to (default: $BRAID_CONTROL, else the daemon, or for other "
                 "verbs than map all)");
  add_serve(app, context);
  add_map(app, context);
  add_unmap(app, context);
  add_list(app, context);
  add_show(app, context);
  add_why(app, context);
  add_path(app, context);
  add_devices(app, context);
  add_sessions(app, context);
  add_close(app, context);
  add_close_session(app, context);
  add_remap(app, context);
  add_resize(app, context);
  add_key(app, context);
  add_config(app, context);
  add_nbd(app, context);
  add_metrics(app, context);
  add_top(app, context);
  app.footer("See also: braidd --help (the daemon), braid VERB --help (with examples).");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& wrong) {
    if (const std::string verb = unknown_verb(app, argc, argv); !verb.empty()) {
      report(context,
             base::make_error(base::Errc::kInvalid, "unknown verb \"{}\"; see braid --help", verb));
      return kUsage;
    }
    return refuse_usage(app, context, wrong);
  }
  return context.exit_code;
}

}  // namespace braid::cli
