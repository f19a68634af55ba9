// `braidd`: the daemon of a host. It maps devices when `braid map` asks, and exports disks if told
// to.
#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/foreground.h"
#include "cli/node.h"
#include "cli/program.h"
#include "cli/serve_arguments.h"
#include "cli/verbs/verbs.h"

namespace {

constexpr std::array kHowToServe = {"--listen", "--read-only", "--block-devices", "--queue-depth",
                                    "--max-io", "--keys",      "--reactors"};

std::string first_given_of(const CLI::App& app, std::span<const char* const> options) {
  for (const char* option : options)
    if (app.count(option) > 0) return option;
  return {};
}

int run(braid::cli::Context& context, int argc, char** argv) {
  using namespace braid::cli;
  context.node_name = kDaemonName;
  ServeArguments arguments;
  CLI::App app(
      "Braid's daemon: maps remote disks when `braid map` asks, and exports disks if told to.",
      "braidd");
  app.set_version_flag("--version", std::string("braidd ") + BRAID_VERSION);
  app.add_flag("--json", context.json, "print JSON instead of words");
  app.add_option("--node-name", context.node_name, "its name, for braid --control")
      ->capture_default_str();
  app.add_option("--serve", arguments.root, "export the files beneath this directory");
  arguments.add_to(app);
  std::string key;
  app.add_option("--key", key, "file with the key of maps that name none");
  unsigned map_reactors = 1;
  app.add_option("--map-reactors", map_reactors,
                 "threads that carry the requests of a mapped device, where braid map names no "
                 "--reactors")
      ->check(CLI::Range(1U, kReactorsMax))
      ->capture_default_str();
  add_device_option(app, context);
  add_metrics_option(app, context);
  app.footer(
      "It stays in the foreground; Ctrl-C unmaps all and ends it.\n"
      "Examples:\n"
      "  braidd &                                   then: braid map HOST/disk.img\n"
      "  braidd --serve /srv/disks --listen 10.0.0.1");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& wrong) {
    return refuse_usage(app, context, wrong);
  }
  NodeOptions options;
  options.name = context.node_name;
  options.role = "daemon";
  if (!key.empty()) options.key_file = std::filesystem::absolute(key);
  options.io_process = true;
  options.map_reactors = map_reactors;
  options.tcp_within_host = arguments.tcp_within_host();
  if (arguments.any()) {
    auto serve = arguments.options();
    if (!serve.ok()) {
      report(context, serve.error(), kUsage);
      return context.exit_code;
    }
    options.serve = std::move(*serve);
  } else if (const std::string option = first_given_of(app, kHowToServe); !option.empty()) {
    report(context,
           braid::base::make_error(braid::base::Errc::kInvalid,
                                   "{} says how to export, but nothing is to be exported: add "
                                   "--serve DIRECTORY, --memory NAME=SIZE or --null NAME=SIZE",
                                   option),
           kUsage);
    return context.exit_code;
  }
  return run_node(context, std::move(options), [&](const nlohmann::json& status) {
    if (context.json) return print_json(status);
    std::cout << "braidd is ready: braid map HOST/EXPORT\n" << std::flush;
    print_metrics_url(status);
    if (!status.at("server").is_null()) print_serving(context, status);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return braid::cli::run_program(argc, argv, run);
}
