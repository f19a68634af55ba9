// `braid config`: what braid.toml says, and what is wrong with it. Asks no daemon.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/config/config.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using nlohmann::json;

namespace {

struct ConfigArguments {
  std::string file;  // empty: kConfigFile, which need not be there
};

struct Judged {
  std::string path;
  Config config;
  std::vector<Problem> problems;
};

Judged judged(const ConfigArguments& arguments) {
  Judged all;
  const bool named = !arguments.file.empty();
  all.path = named ? std::filesystem::absolute(arguments.file).string() : kConfigFile;
  all.config = load_config(all.path, named, all.problems);
  judge_config(all.config, all.problems);
  judge_files(all.config, all.problems);
  return all;
}

json problem_json(const Problem& problem) {
  return {{"file", problem.place.file},
          {"line", problem.place.line},
          {"column", problem.place.column},
          {"message", problem.what},
          {"kind", problem.warning ? "warning" : "error"}};
}

json problems_json(const std::vector<Problem>& problems) {
  json list = json::array();
  for (const Problem& problem : problems) list.push_back(problem_json(problem));
  return list;
}

json lines_of(const std::string& text) {
  json lines = json::array();
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

void print_problems(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) std::cerr << problem.text() << "\n";
}

void check(Context& context, const ConfigArguments& arguments) {
  const Judged all = judged(arguments);
  const bool ok = !any_error(all.problems);
  if (!ok) context.exit_code = kFailed;
  const std::string summary = ok ? config_summary(all.config) : "";
  if (context.json)
    return print_json({{"ok", ok},
                       {"files", all.config.files},
                       {"problems", problems_json(all.problems)},
                       {"summary", lines_of(summary)}});
  print_problems(all.problems);
  if (!ok) return;
  if (all.config.files.empty())
    std::cout << "ok: there is no " << all.path << "\n";
  else
    std::cout << "ok\n";
  std::cout << summary;
}

void show(Context& context, const ConfigArguments& arguments) {
  const Judged all = judged(arguments);
  if (any_error(all.problems)) {
    context.exit_code = kFailed;
    if (context.json) return print_json({{"problems", problems_json(all.problems)}});
    return print_problems(all.problems);
  }
  if (context.json)
    std::cout << config_json(all.config) << "\n";
  else
    std::cout << config_table(all.config);
}

}  // namespace

void add_config(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("config", "the configuration of braidd: check it, show it");
  verb->require_subcommand(1);
  verb->fallthrough();
  auto arguments = std::make_shared<ConfigArguments>();
  const auto add_file = [&](CLI::App* to) {
    to->add_option("FILE", arguments->file,
                   std::string("the file, with the folder of drop-ins beside it (default: ") +
                       kConfigFile + ")");
  };
  CLI::App* checks = verb->add_subcommand("check", "say all that is wrong, or what would be done");
  add_file(checks);
  checks->footer(
      "Examples:\n"
      "  braid config check                       before systemctl restart braidd\n"
      "  braid config check ./braid.toml --json");
  checks->callback([&context, arguments] { check(context, *arguments); });
  CLI::App* shows =
      verb->add_subcommand("show", "each value of all files together, and where it comes from");
  add_file(shows);
  shows->footer("Examples:\n  braid config show\n  braid config show ./braid.toml --json");
  shows->callback([&context, arguments] { show(context, *arguments); });
  CLI::App* keys = verb->add_subcommand("reference", "all keys, as docs/configuration.md has them");
  keys->callback([] { std::cout << keys_reference(); });
}

}  // namespace braid::cli
