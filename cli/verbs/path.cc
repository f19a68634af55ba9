// `braid path`: the paths of the sessions to servers, shown and changed while they are used.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/control.h"
#include "cli/table.h"
#include "cli/target.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;
using nlohmann::json;

namespace {

struct PathArguments {
  std::string session;
  std::string path;  // or a policy
  bool force = false;
};

std::string devices_text(const json& session) {
  std::string text;
  for (const json& device : items(session, "devices"))
    text += (text.empty() ? "" : ", ") + text_of(device);
  return text.empty() ? "-" : text;
}

std::string ios_text(const json& path) {
  const json reads = member(path, "reads"), writes = member(path, "writes");
  if (!reads.is_number_unsigned() || !writes.is_number_unsigned()) return "-";
  return std::to_string(reads.get<uint64_t>() + writes.get<uint64_t>());
}

std::string state_text(const json& path) {
  const std::string why = text_of(member(path, "why"));
  return text_of(member(path, "state")) + (why.empty() || why == "-" ? "" : ": " + why);
}

void print_session(const json& session) {
  std::cout << "session to " << text_of(member(session, "server")) << ", "
            << text_of(member(session, "state")) << ", policy "
            << text_of(member(session, "path_policy")) << ", devices: " << devices_text(session)
            << "\n";
  Table table({">ID", "PATH", "BY", ">I/OS", ">IN FLIGHT", ">ERRORS", ">MOVED", ">RECONNECTS",
               ">FAILED OVER", ">P50 US", ">P99 US", "STATE"});
  for (const json& path : items(session, "paths"))
    table.row({text_of(member(path, "id")), text_of(member(path, "path")),
               text_of(member(path, "device")), ios_text(path), text_of(member(path, "in_flight")),
               text_of(member(path, "errors")), text_of(member(path, "moved")),
               text_of(member(path, "reconnects")), text_of(member(path, "failed_over")),
               text_of(member(path, "p50_us")), text_of(member(path, "p99_us")), state_text(path)});
  std::cout << table.text() << std::flush;
}

/// Whether a person means this session by the name: of one of its devices, or an address of its
/// server.
bool is_named(const json& node, const json& session, const std::string& name) {
  for (const json& device : node.at("devices")) {
    const bool fit =
        device.at("name") == name || device.at("device") == name || device.at("target") == name;
    for (const json& of_session : items(session, "devices"))
      if (fit && of_session == device.at("name")) return true;
  }
  auto address = parse_path(name);
  if (!address.ok()) return false;
  for (const json& path : items(session, "paths")) {
    const json text = member(path, "path");
    auto spec = parse_path(text.is_string() ? text.get<std::string>() : "");
    if (spec.ok() && address_text(spec->server) == address_text(address->server)) return true;
  }
  return false;
}

/// A session, and the node that has it.
struct FoundSession {
  std::string node;
  json session;
};

/// All that are meant by the name; all there are without one.
Result<std::vector<FoundSession>> find_sessions(const Context& context, const std::string& name) {
  BRAID_TRY(const Nodes nodes, ask_nodes(context));
  std::vector<FoundSession> found;
  std::string there, silent;
  for (const json& node : nodes.answered) {
    for (const json& session : items(node, "sessions")) {
      there += (there.empty() ? "" : ", ") + text_of(member(session, "server"));
      if (name.empty() || is_named(node, session, name))
        found.push_back({node.at("node"), session});
    }
  }
  for (const base::Error& why : nodes.silent) silent += "; " + why.message();
  if (!found.empty() || name.empty()) return found;
  return make_error(Errc::kNotFound,
                    "no session \"{}\" (a mapped device, or an address of its server); there {}: "
                    "{}{}",
                    name, there.empty() ? "are" : "is", there.empty() ? "none" : there, silent);
}

Result<FoundSession> find_session(const Context& context, const std::string& name) {
  BRAID_TRY(const std::vector<FoundSession> found, find_sessions(context, name));
  if (found.size() == 1) return found.front();
  return make_error(Errc::kInvalid,
                    "\"{}\" fits sessions of {} nodes; say which with --control, or name a device",
                    name, found.size());
}

void list(Context& context, const PathArguments& arguments) {
  auto found = find_sessions(context, arguments.session);
  if (!found.ok()) return report(context, found.error());
  json all = json::array();
  for (FoundSession& one : *found) {
    one.session["node"] = one.node;
    all.push_back(one.session);
  }
  if (context.json) return print_json({{"sessions", all}});
  if (all.empty()) std::cout << "no session to any server\n";
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0) std::cout << "\n";
    print_session(all[i]);
  }
}

void change(Context& context, const char* action, const PathArguments& arguments) {
  const std::string asked = action;
  // Say what is wrong with a path before anything is asked of anybody.
  if (asked == "add") {
    if (auto path = parse_path(arguments.path); !path.ok())
      return report(context, path.error(), kUsage);
  }
  auto found = find_session(context, arguments.session);
  if (!found.ok()) return report(context, found.error());
  if (asked == "policy" && arguments.path.empty()) {
    const json policy = member(found->session, "path_policy");
    if (context.json) return print_json({{"path_policy", policy}});
    std::cout << text_of(policy) << "\n";
    return;
  }
  const json params{{"action", asked},
                    {"session", member(found->session, "server")},
                    {"path", arguments.path},
                    {"force", arguments.force}};
  auto session = call_node(found->node, "path", params,
                           {.any_user = !context.node_to_ask().empty() && geteuid() == 0});
  if (!session.ok()) return report(context, session.error());
  if (context.json) return print_json(*session);
  print_session(*session);
}

/// One action on a path.
CLI::App* add_action(CLI::App& verb, Context& context, const char* action, const char* what,
                     const char* of, std::shared_ptr<PathArguments> arguments) {
  CLI::App* sub = verb.add_subcommand(action, what);
  sub->add_option("SESSION", arguments->session,
                  "a mapped device (name, /dev path or target), or an address of the server")
      ->required();
  sub->add_option("PATH", arguments->path, of)->required();
  sub->callback([&context, action, arguments] { change(context, action, *arguments); });
  return sub;
}

constexpr const char* kOldPath = "its number or address, see braid path list";

void add_policy(CLI::App& verb, Context& context, std::shared_ptr<PathArguments> arguments) {
  CLI::App* policy =
      verb.add_subcommand("policy", "show or choose how the path of a request is chosen");
  policy->add_option("SESSION", arguments->session, "as for the others")->required();
  policy
      ->add_option("POLICY", arguments->path,
                   "round-robin: in turn; min-inflight: with the fewest requests in flight; "
                   "min-latency: whose last answers came fastest")
      ->check(CLI::IsMember({"round-robin", "min-inflight", "min-latency"}));
  policy->callback([&context, arguments] { change(context, "policy", *arguments); });
}

}  // namespace

void add_path(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<PathArguments>();
  CLI::App* verb = app.add_subcommand(
      "path", "the paths by which mapped devices reach their servers: list, add, remove");
  verb->require_subcommand(1);
  CLI::App* listing = verb->add_subcommand("list", "the paths of one session, or of all");
  listing->add_option("SESSION", arguments->session,
                      "a mapped device (name, /dev path or target), or an address of the server");
  listing->callback([&context, arguments] { list(context, *arguments); });
  add_action(*verb, context, "add", "one more path to the same server",
             "[SOURCE@]HOST[:PORT]: where it listens, and by which address of this machine",
             arguments);
  for (const auto& [action, what] :
       {std::pair{"remove", "end a path for good; what is in flight on it goes by another"},
        std::pair{"disconnect", "take a path down and leave it down"}})
    add_action(*verb, context, action, what, kOldPath, arguments)
        ->add_flag("--force", arguments->force, "even if no other path is up: all I/O waits then");
  add_action(*verb, context, "reconnect", "make a path anew, now", kOldPath, arguments);
  add_policy(*verb, context, arguments);
  verb->footer(
      "Examples:\n"
      "  braid path list\n"
      "  braid path add disk.img 10.1.0.1\n"
      "  braid path add disk.img 10.1.0.2@10.1.0.1:1234\n"
      "  braid path disconnect disk.img 1             then: braid path reconnect disk.img 1\n"
      "  braid path remove 10.0.0.1 10.1.0.1\n"
      "  braid path policy disk.img min-latency");
}

}  // namespace braid::cli
