// `braid key`: keys of clients, and the file of a server that lets in only those.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/braidd_parts.h"
#include "cli/control.h"
#include "cli/table.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;
using nlohmann::json;

namespace {

struct NewArguments {
  std::string name;
  std::string output;
};

Result<std::vector<std::string>> servers_with_keys(Context& context) {
  BRAID_TRY(const Nodes nodes, ask_nodes(context));
  std::vector<std::string> servers;
  for (const json& node : nodes.answered) {
    const json server = node.value("server", json());
    if (server.is_object() && server.value("keys_file", json()).is_string())
      servers.push_back(node.at("node"));
  }
  if (!servers.empty()) return servers;
  std::string silent;
  for (const base::Error& why : nodes.silent) silent += "; " + why.message();
  return make_error(Errc::kNotFound, "no node here serves with --keys{}", silent);
}

json reload_at(Context& context, const std::string& node) {
  auto done = call_node(node, "reload_keys", json::object(),
                        {.any_user = !context.node_to_ask().empty() && geteuid() == 0});
  if (!done.ok()) {
    context.exit_code = kFailed;
    if (!context.json)
      std::cerr << "braid: " << node << ": " << printable(done.error().message()) << "\n";
    return {
        {"node", node},
        {"error", {{"kind", to_string(done.error().code())}, {"message", done.error().message()}}}};
  }
  json told = *done;
  told["node"] = node;
  if (!context.json)
    std::cout << node << ": " << told.value("keys", json::array()).size() << " keys, "
              << told.value("sessions_ended", uint64_t{0}) << " sessions ended\n";
  return told;
}

/// Of the server that --control names, else of all that have keys: one that cannot read its file
/// keeps the keys that it has, and hides no other.
void reload(Context& context) {
  auto servers = servers_with_keys(context);
  if (!servers.ok()) return report(context, servers.error());
  json all = json::array();
  for (const std::string& node : *servers) all.push_back(reload_at(context, node));
  if (context.json) print_json(all);
}

}  // namespace

void add_key(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("key", "keys, by which clients and servers know each other");
  verb->require_subcommand(1);
  verb->fallthrough();

  auto made = std::make_shared<NewArguments>();
  CLI::App* anew = verb->add_subcommand("new", "make a key: prints its line NAME:BASE64");
  anew->add_option("NAME", made->name, "the client's; shown at the server")->required();
  anew->add_option("--output,-o", made->output, "a new file for it, mode 0600");
  anew->footer(
      "Examples:\n"
      "  braid key new vm7 -o vm7.key        for the client: braid map HOST/EXPORT --key vm7.key\n"
      "  cat vm7.key >> /etc/braid/keys      at the server:  braid serve ROOT --keys "
      "/etc/braid/keys");
  anew->callback([&context, made] { context.parts->make_key(context, made->name, made->output); });

  auto file = std::make_shared<std::string>();
  CLI::App* names = verb->add_subcommand("list", "the names of the keys in a file");
  names->add_option("FILE", *file, "a server's, or a client's")->required();
  names->callback([&context, file] { context.parts->list_keys(context, *file); });

  CLI::App* again = verb->add_subcommand(
      "reload", "have this host's servers read their keys again; who has none any more is cut off");
  again->footer("Examples:\n  braid key reload\n  braid --control serve.4711 key reload");
  again->callback([&context] { reload(context); });
}

}  // namespace braid::cli
