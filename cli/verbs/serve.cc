// `braid serve`: exports the files beneath a directory, in the foreground.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/foreground.h"
#include "cli/verbs/serve_arguments.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using nlohmann::json;

void print_serving(const Context& context, const json& status) {
  if (context.json) return print_json(status);
  const json& server = status.at("server");
  std::string endpoints;
  for (const json& endpoint : server.at("endpoints"))
    endpoints += (endpoints.empty() ? "" : " and ") + endpoint.get<std::string>();
  const auto guard = server.value("chunk_guard", std::string("open"));
  std::cout << "serving " << server.at("what").get<std::string>() << " on " << endpoints
            << " through " << server.at("hca").get<std::string>()
            << (guard == "open" ? "" : ", chunks guarded by " + guard) << "; Ctrl-C ends it\n"
            << std::flush;
  if (status.value("role", "") != "daemon") print_metrics_url(status);
}

void add_serve(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* verb =
      app.add_subcommand("serve", "export disks and files beneath a directory, in the foreground");
  verb->add_option("ROOT", arguments->root,
                   "the directory; its files are exported by their names beneath it; with "
                   "/%SESSNAME% at its end each client session has the directory of its "
                   "name, with --keys that of its key's name");
  verb->add_option("--node-name", context.node_name, "this node's name (default: serve.PID)");
  arguments->add_to(*verb);
  add_device_option(*verb, context);
  add_poll_option(*verb, context);
  add_metrics_option(*verb, context);
  verb->footer(
      "Examples:\n"
      "  braid serve /srv/disks                        then: braid map HOST/disk.img\n"
      "  braid serve /srv/disks --listen 10.0.0.1:1234 --read-only\n"
      "  braid serve /srv/disks --listen 10.0.0.1 --keys /etc/braid/keys\n"
      "  braid serve --memory ram=1G --listen 127.0.0.1:0\n"
      "  braid serve /srv/disks --listen 10.0.0.1 --listen 10.1.0.1    two paths for clients\n"
      "  braid serve /srv/disks --listen 10.0.0.1 --reactors 4         for many clients by TCP\n"
      "  braid serve /srv/disks --device mlx5_0");
  verb->callback([&context, arguments] {
    if (!context.control.empty()) return report(context, is_a_node_itself(), kUsage);
    auto serve = arguments->options();
    if (!serve.ok()) return report(context, serve.error(), kUsage);
    NodeOptions options;
    options.name =
        context.node_name.empty() ? "serve." + std::to_string(getpid()) : context.node_name;
    options.role = "server";
    options.io_process = true;
    options.tcp_within_host = arguments->tcp_within_host();
    options.serve = std::move(*serve);
    context.exit_code = run_node(context, std::move(options),
                                 [&](const json& status) { print_serving(context, status); });
  });
}

}  // namespace braid::cli
