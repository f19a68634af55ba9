// The part of `braid nbd` that is a node.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bnbd/nbd_service.h"
#include "cli/braidd_parts.h"
#include "cli/foreground.h"
#include "cli/nbd_arguments.h"
#include "cli/node.h"
#include "cli/target.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;
using nlohmann::json;

namespace {

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
    nbd.listen.push_back(std::move(address));
  }
  std::vector<std::string> names;
  for (const std::string& text : arguments.targets) {
    BRAID_TRY(NbdTarget target, parse_nbd_target(text));
    if (std::find(names.begin(), names.end(), target.name) != names.end()) {
      const std::string named = target.name + "=";
      const std::string what = text.starts_with(named) ? text.substr(named.size()) : text;
      return make_error(Errc::kInvalid,
                        "target \"{}\": there is a \"{}\" already; give it another name, "
                        "NAME={}",
                        text, target.name, what);
    }
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
  print_metrics_url(status);
  std::cout << "ready for NBD clients; Ctrl-C ends it\n" << std::flush;
}

}  // namespace

void serve_nbd(Context& context, const NbdArguments& arguments) {
  if (!context.control.empty()) return report(context, is_a_node_itself(), kUsage);
  auto made = plan(arguments);
  if (!made.ok()) return report(context, made.error(), kUsage);
  made->options.name =
      context.node_name.empty() ? "nbd." + std::to_string(getpid()) : context.node_name;
  context.exit_code = run_nbd(context, std::move(made->options), made->remote,
                              [&](const json& status) { print_ready(context, status); });
}

}  // namespace braid::cli
