// `braidd`: the daemon of a host. It maps devices when `braid map` asks, and exports disks if told
// to.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/config/config.h"
#include "cli/foreground.h"
#include "cli/node.h"
#include "cli/serve_arguments.h"
#include "cli/verbs/program.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

namespace {

void say(const std::string& words) {
  std::cerr << "braidd: " << words << "\n";
}

/// An option that says how to export, if nothing is to be exported.
std::string idle_option(const CLI::App& app, const Config& config) {
  if (config.group("serve").find("root") != nullptr || !config.all("export").empty()) return {};
  for (const ConfigKey& key : config_keys())
    if (std::string_view(key.group) == "serve" && app.count(key.option) > 0) return key.option;
  return {};
}

/// Lays the command line over the files, and says what it overrides.
base::Status override_all(Config& config, const CLI::App& app, const ServeArguments& arguments) {
  const auto tell = [](const std::string& words) {
    if (!words.empty()) say(words);
  };
  for (const ConfigKey& key : config_keys()) {
    const bool exported = std::string_view(key.group) == "export";
    if (*key.option == 0 || exported || app.count(key.option) == 0) continue;
    tell(override_with(config, key, typed_value(key, app.get_option(key.option)->results())));
  }
  using Kind = bnbd::NamedExport::Kind;
  for (const auto& [name, kind, texts] : {std::tuple("memory", Kind::kMemory, &arguments.memory),
                                          std::tuple("null", Kind::kNull, &arguments.null)}) {
    BRAID_TRY(const auto typed, parse_synthetic(*texts, kind));
    for (const SyntheticExport& one : typed)
      tell(override_export(config, *find_key("export", name), one));
  }
  return {};
}

/// The files, without those problems that are only odd, which are said.
Config read_files(const std::string& file, std::vector<Problem>& problems) {
  const bool named = !file.empty();
  const std::string path = named ? std::filesystem::absolute(file).string() : kConfigFile;
  Config config = load_config(path, named, problems);
  if (config.files.empty() && problems.empty())
    say("there is no " + path + ": by the command line only");
  for (const std::string& read : config.files) say("configured by " + read);
  return config;
}

int refuse_config(Context& context, const std::vector<Problem>& problems) {
  std::string all;
  for (const Problem& problem : problems) {
    if (context.json)
      all += (all.empty() ? "" : "\n") + problem.text();
    else
      say(problem.text());
  }
  if (context.json) report(context, base::Error(base::Errc::kInvalid, all), kUsage);
  return kUsage;
}

}  // namespace

int run_braidd(Context& context, int argc, char** argv) {
  context.node_name = kDaemonName;
  ServeArguments arguments;
  CLI::App app(
      "Braid's daemon: maps remote disks when `braid map` asks, and exports disks if told to.",
      "braidd");
  app.set_version_flag("--version", std::string("braidd ") + BRAID_VERSION);
  app.add_flag("--json", context.json, "print JSON instead of words");
  std::string file;
  app.add_option("--config", file,
                 std::string("its configuration, which the other options override (default: ") +
                     kConfigFile + ", if there is one); braid config check");
  app.add_option("--node-name", context.node_name, "its name, for braid --control")
      ->capture_default_str();
  app.add_option("--serve", arguments.root, "export the files beneath this directory");
  add_serve_options(app, arguments);
  std::string key;
  app.add_option("--key", key, "file with the key of maps that name none");
  unsigned map_reactors = 1;
  app.add_option("--map-reactors", map_reactors,
                 "threads that carry the requests of a mapped device, where braid map names no "
                 "--reactors")
      ->check(CLI::Range(1U, kReactorsMax))
      ->capture_default_str();
  add_device_option(app, context);
  add_poll_option(app, context);
  add_metrics_option(app, context);
  app.footer(
      "It stays in the foreground; Ctrl-C unmaps all and ends it.\n"
      "Examples:\n"
      "  braidd &                                   then: braid map HOST/disk.img\n"
      "  braidd --serve /srv/disks --listen 10.0.0.1\n"
      "  braidd --config ./braid.toml");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& wrong) {
    return refuse_usage(app, context, wrong);
  }
  std::vector<Problem> problems;
  Config config = read_files(file, problems);
  if (const auto overridden = override_all(config, app, arguments); !overridden.ok()) {
    report(context, overridden.error(), kUsage);
    return context.exit_code;
  }
  if (const std::string option = idle_option(app, config);
      !option.empty() && !any_error(problems)) {
    report(context,
           base::make_error(base::Errc::kInvalid,
                            "{} says how to export, but nothing is to be exported: add "
                            "--serve DIRECTORY, --memory NAME=SIZE or --null NAME=SIZE",
                            option),
           kUsage);
    return context.exit_code;
  }
  judge_config(config, problems);
  if (any_error(problems)) return refuse_config(context, problems);
  for (const Problem& odd : problems) say(odd.text());
  auto options = node_options(config);
  if (!options.ok()) {
    report(context, options.error(), kUsage);
    return context.exit_code;
  }
  context.node_name = options->name;
  context.device = options->device;
  return run_node(context, std::move(*options), [&](const nlohmann::json& status) {
    if (context.json) return print_json(status);
    std::cout << "braidd is ready: braid map HOST/EXPORT\n" << std::flush;
    print_metrics_url(status);
    if (!status.at("server").is_null()) print_serving(context, status);
  });
}

}  // namespace braid::cli
