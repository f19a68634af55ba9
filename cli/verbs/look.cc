// `braid list`, `braid show` and `braid why`: what there is, all about one thing, and what it waits
// for.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/control.h"
#include "cli/table.h"
#include "cli/target.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using base::Error;
using nlohmann::json;

namespace {

/// "1/2": how many of its session's paths are connected.
std::string paths_text(const json& device) {
  const auto session = device.find("session");
  if (session == device.end() || !session->is_object()) return "-";
  const auto paths = session->find("paths");
  if (paths == session->end() || !paths->is_array()) return "-";
  size_t up = 0;
  for (const json& path : *paths)
    up += path.is_object() && path.value("connected", json()) == true ? 1 : 0;
  return std::to_string(up) + "/" + std::to_string(paths->size());
}

void list(Context& context) {
  auto nodes = ask_nodes(context);
  if (!nodes.ok()) return report(context, nodes.error());
  if (nodes->answered.empty() && !nodes->silent.empty()) context.exit_code = kFailed;
  if (context.json)
    return print_json({{"nodes", nodes->answered}, {"silent", silent_json(nodes->silent)}});
  Table devices({"DEVICE", "NAME", ">SIZE", "ACCESS", "STATE", "PATHS", "TARGET", "NODE"});
  Table exports({"EXPORT", "KIND", ">SIZE", "OPEN BY", "SERVER", "NODE"});
  for (const json& node : nodes->answered) {
    for (const json& device : node.at("devices"))
      devices.row({text_of(device.at("device")), text_of(device.at("name")),
                   size_text(device.at("size_bytes").get<uint64_t>()), text_of(device.at("access")),
                   text_of(device.at("state")), paths_text(device), text_of(device.at("target")),
                   text_of(node.at("node"))});
    for (const json& exported : node.at("exports"))
      exports.row({text_of(exported.at("name")), text_of(exported.at("kind")),
                   size_text(exported.at("size_bytes").get<uint64_t>()),
                   text_of(exported.at("open_by")), text_of(exported.at("server")),
                   text_of(node.at("node"))});
  }
  if (nodes->answered.empty()) {
    std::cout << (nodes->silent.empty() ? "no Braid node is running\n" : "no Braid node answers\n");
  } else if (devices.empty() && exports.empty()) {
    for (const json& node : nodes->answered)
      std::cout << "node " << text_of(node.at("node"))
                << ": no device is mapped and no export is open\n";
  }
  if (!devices.empty()) std::cout << devices.text();
  if (!devices.empty() && !exports.empty()) std::cout << "\n";
  if (!exports.empty()) std::cout << exports.text();
  std::cout << std::flush;
  // What is listed is not all there is.
  for (const Error& why : nodes->silent) std::cerr << "braid: " << printable(why.message()) << "\n";
}

bool all_numbers(const json& list) {
  return list.is_array() && !list.empty() &&
         std::all_of(list.begin(), list.end(), [](const json& one) { return one.is_number(); });
}

/// One line a field, and a list of numbers; objects inside are indented below their name.
void print_fields(const json& object, const std::string& indent) {
  size_t width = 0;
  for (const auto& [key, value] : object.items())
    if (!value.is_object()) width = std::max(width, key.size());
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      std::cout << indent << key << "\n";
      print_fields(value, indent + "  ");
    } else if (all_numbers(value)) {
      std::string text;
      for (const json& item : value) text += (text.empty() ? "" : " ") + text_of(item);
      std::cout << indent << key << std::string(width - key.size() + 2, ' ') << text << "\n";
    } else if (value.is_array()) {
      for (const json& item : value) {
        std::cout << indent << key << (item.is_object() ? "" : "  " + text_of(item)) << "\n";
        if (item.is_object()) print_fields(item, indent + "  ");
      }
    } else {
      std::string text = text_of(value);
      if (key.ends_with("_bytes") && value.is_number_unsigned() && value.get<uint64_t>() >= 1024)
        text += " (" + size_text(value.get<uint64_t>()) + ")";
      std::cout << indent << key << std::string(width - key.size() + 2, ' ') << text << "\n";
    }
  }
}

void show(Context& context, const std::string& name) {
  auto found = find(context, name);
  if (!found.ok()) return report(context, found.error());
  const json thing = json::parse(found->thing);
  if (context.json) return print_json(thing);
  print_fields(thing, "");
}

void why(Context& context, const std::string& name) {
  auto found = find(context, name);
  if (!found.ok()) return report(context, found.error());
  const json thing = json::parse(found->thing);
  const json answer{
      {"name", thing.at("name")}, {"state", thing.at("state")}, {"why", thing.at("why")}};
  if (context.json) return print_json(answer);
  for (const json& sentence : answer.at("why")) std::cout << text_of(sentence) << "\n";
}

void add_named(CLI::App& app, Context& context, const char* name, const char* what,
               const char* examples, void (*work)(Context&, const std::string&)) {
  auto argument = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand(name, what);
  verb->add_option("NAME", *argument,
                   "a device's name, /dev path or target, or the name of an export or node")
      ->required();
  verb->footer(examples);
  verb->callback([&context, argument, work] { work(context, *argument); });
}

}  // namespace

void add_list(CLI::App& app, Context& context) {
  CLI::App* verb =
      app.add_subcommand("list", "the mapped devices and the exports in use on this host");
  verb->footer("Examples:\n  braid list\n  braid list --json");
  verb->callback([&context] { list(context); });
}

void add_show(CLI::App& app, Context& context) {
  add_named(app, context, "show",
            "all about one device, export or node: state, limits, counters, latencies",
            "Examples:\n  braid show disk.img\n  braid show /dev/loop0 --json\n  braid show "
            "serve.812",
            show);
}

void add_why(CLI::App& app, Context& context) {
  add_named(app, context, "why", "what a device waits for, and what would unblock it",
            "Examples:\n  braid why disk.img", why);
}

}  // namespace braid::cli
