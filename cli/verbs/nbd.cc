// `braid nbd`: serves remote and local devices to NBD clients, in the foreground.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "bnbd/nbd_service.h"
#include "cli/foreground.h"
#include "cli/nbd_arguments.h"
#include "cli/node.h"
#include "cli/target.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;
using nlohmann::json;

namespace {

struct NbdArguments {
  std::vector<std::string> targets;
  std::string unix_path;
  std::vector<std::string> listen;
  bool read_only = false;
  std::string give_up_after = "never";
  std::string key;
  unsigned reactors = 0;
  bool guard_reads = false;
  std::string wire = "auto";
};

/// What the node is to be, and what it is to map.
struct Plan {
  NodeOptions options;
  std::vector<json> remote;
};

json map_params(const NbdArguments& arguments, const NbdTarget& target) {
  json params{{"target", target.remote},
              {"name", target.name},
              {"front_end", "nbd-server"},
              {"give_up_after", arguments.give_up_after},
              {"access", arguments.read_only ? "ro" : "rw"}};
  if (arguments.reactors > 0) params["reactors"] = arguments.reactors;
  if (arguments.guard_reads) params["guard_reads"] = true;
  if (!arguments.key.empty()) params["key"] = std::filesystem::absolute(arguments.key).string();
  return params;
}

Result<Plan> plan(const NbdArguments& arguments) {
  Plan made;
  NbdOptions nbd;
  nbd.read_only = arguments.read_only;
  if (auto limit = parse_duration(arguments.give_up_after); !limit.ok())
    return limit.error().with("--give-up-after");
  // The node leaves the working directory.
  if (!arguments.unix_path.empty()) nbd.unix_path = std::filesystem::absolute(arguments.unix_path);
  std::vector<std::string> listen = arguments.listen;
  if (listen.empty() && nbd.unix_path.empty()) listen.emplace_back("127.0.0.1");
  for (const std::string& text : listen) {
    BRAID_TRY(vhca::Address address, parse_address(text, bnbd::kNbdPort));
    if (address.ip.empty()) address.ip = "::";
    nbd.listen.push_back(std::move(address));
  }
  std::vector<std::string> names;
  for (const std::string& text : arguments.targets) {
    BRAID_TRY(NbdTarget target, parse_nbd_target(text));
    if (std::find(names.begin(), names.end(), target.name) != names.end())
      return make_error(Errc::kInvalid,
                        "target \"{}\": there is a \"{}\" already; give it another name, "
                        "NAME={}",
                        text, target.name, text);
    names.push_back(target.name);
    if (target.local)
      nbd.local.push_back(std::move(*target.local));
    else
      made.remote.push_back(map_params(arguments, target));
  }
  nbd.default_export = names.front();
  made.options.nbd = std::move(nbd);
  made.options.role = "nbd";
  made.options.tcp_within_host = arguments.wire == "tcp";
  return made;
}

void print_ready(const Context& context, const json& status) {
  if (context.json) return print_json(status);
  for (const json& exported : status.at("nbd").at("exports"))
    for (const json& uri : exported.at("uris")) std::cout << text_of(uri) << "\n";
  std::cout << "ready for NBD clients; Ctrl-C ends it\n" << std::flush;
}

}  // namespace

void add_nbd(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<NbdArguments>();
  CLI::App* verb = app.add_subcommand(
      "nbd", "serve devices to NBD clients (libnbd, QEMU, fio, nbd-client), in the foreground");
  verb->add_option("TARGET", arguments->targets,
                   "[NAME=]HOST[:PORT]/EXPORT as braid map takes it, file:PATH, memory:SIZE or "
                   "null:SIZE; the first one is what a client gets that names none")
      ->required();
  verb->add_option("--unix", arguments->unix_path, "the unix socket to serve at");
  verb->add_option("--listen", arguments->listen,
                   "ADDRESS[:PORT] to serve at by TCP, to whoever can reach it (default, without "
                   "--unix: 127.0.0.1:10809); port 0 takes a free one")
      ->allow_extra_args(false);
  verb->add_flag("--read-only", arguments->read_only, "take no writes");
  verb->add_option("--give-up-after", arguments->give_up_after,
                   "let I/O fail when a device's server is away for so long: 30s, 5m or never")
      ->capture_default_str();
  verb->add_option("--key", arguments->key, "file with this client's key for the servers");
  verb->add_option("--reactors", arguments->reactors,
                   "threads that carry each remote device's requests; clients' connections are "
                   "spread over them (default: 1)")
      ->check(CLI::Range(1U, kReactorsMax));
  verb->add_flag("--guard-reads", arguments->guard_reads, "as braid map has it");
  verb->add_option("--wire", arguments->wire, "to servers: auto, or tcp as braid map has it")
      ->check(CLI::IsMember({"auto", "tcp"}))
      ->capture_default_str();
  verb->add_option("--node-name", context.node_name, "this node's name (default: nbd.PID)");
  add_device_option(*verb, context);
  add_poll_option(*verb, context);
  add_metrics_option(*verb, context);
  verb->footer(
      "Examples:\n"
      "  braid nbd 10.0.0.1/disk.img --unix /run/disk.sock\n"
      "      then: nbdinfo 'nbd+unix:///disk.img?socket=/run/disk.sock'\n"
      "  braid nbd 10.0.0.1,10.1.0.1/disk.img file:/srv/b.img --listen 127.0.0.1\n"
      "  braid nbd ram=memory:1G --unix /tmp/ram.sock --read-only");
  verb->callback([&context, arguments] {
    if (!context.control.empty()) return report(context, is_a_node_itself(), kUsage);
    auto made = plan(*arguments);
    if (!made.ok()) return report(context, made.error(), kUsage);
    made->options.name =
        context.node_name.empty() ? "nbd." + std::to_string(getpid()) : context.node_name;
    context.exit_code = run_nbd(context, std::move(made->options), made->remote,
                                [&](const json& status) { print_ready(context, status); });
  });
}

}  // namespace braid::cli
