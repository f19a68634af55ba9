// `braid config`: what braid.toml says, and what is wrong with it. Asks no daemon.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "cli/braidd_parts.h"
#include "cli/config/config.h"

namespace braid::cli {

void add_config(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("config", "the configuration of braidd: check it, show it");
  verb->require_subcommand(1);
  verb->fallthrough();
  auto file = std::make_shared<std::string>();
  const auto add_file = [&](CLI::App* to) {
    to->add_option("FILE", *file,
                   std::string("the file, with the folder of drop-ins beside it (default: ") +
                       kConfigFile + ")");
  };
  CLI::App* checks = verb->add_subcommand("check", "say all that is wrong, or what would be done");
  add_file(checks);
  checks->footer(
      "Examples:\n"
      "  braid config check                       before systemctl restart braidd\n"
      "  braid config check ./braid.toml --json");
  checks->callback([&context, file] { context.parts->check_config(context, *file); });
  CLI::App* shows =
      verb->add_subcommand("show", "each value of all files together, and where it comes from");
  add_file(shows);
  shows->footer("Examples:\n  braid config show\n  braid config show ./braid.toml --json");
  shows->callback([&context, file] { context.parts->show_config(context, *file); });
  CLI::App* keys = verb->add_subcommand("reference", "all keys, as docs/configuration.md has them");
  keys->callback([&context] {
    if (context.json)
      std::cout << keys_json() << "\n";
    else
      std::cout << keys_reference();
  });
}

}  // namespace braid::cli
