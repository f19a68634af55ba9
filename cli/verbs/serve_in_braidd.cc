// The part of `braid serve` that is a node.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/braidd_parts.h"
#include "cli/foreground.h"
#include "cli/serve_arguments.h"

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

void serve(Context& context, const ServeArguments& arguments) {
  if (!context.control.empty()) return report(context, is_a_node_itself(), kUsage);
  auto wanted = arguments.options();
  if (!wanted.ok()) return report(context, wanted.error(), kUsage);
  NodeOptions options;
  options.name =
      context.node_name.empty() ? "serve." + std::to_string(getpid()) : context.node_name;
  options.role = "server";
  options.io_process = true;
  options.tcp_within_host = arguments.tcp_within_host();
  options.serve = std::move(*wanted);
  context.exit_code = run_node(context, std::move(options),
                               [&](const json& status) { print_serving(context, status); });
}

}  // namespace braid::cli
