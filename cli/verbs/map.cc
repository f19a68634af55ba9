// `braid map` and `braid unmap`: through the daemon, or in the foreground.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/control.h"
#include "cli/foreground.h"
#include "cli/target.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using nlohmann::json;

namespace {

struct MapArguments {
  std::string target;
  std::string name;
  std::string front_end = "auto";
  bool read_only = false;
  bool migration = false;
  std::string give_up_after = "never";
  bool foreground = false;
};

void print_mapped(const Context& context, const json& device) {
  if (context.json)
    print_json(device);
  else
    std::cout << device.at("device").get<std::string>() << "  "
              << device.at("name").get<std::string>() << ", "
              << size_text(device.at("size_bytes").get<uint64_t>()) << ", "
              << device.at("access").get<std::string>() << ", from "
              << device.at("target").get<std::string>() << " through "
              << device.at("front_end").get<std::string>() << "\n"
              << std::flush;
}

json to_params(const MapArguments& arguments) {
  return {{"target", arguments.target},
          {"name", arguments.name},
          {"front_end", arguments.front_end},
          {"give_up_after", arguments.give_up_after},
          {"access", arguments.read_only   ? "ro"
                     : arguments.migration ? "migration"
                                           : "rw"}};
}

void map(Context& context, const MapArguments& arguments) {
  // Say what is wrong with the target before anything is asked of anybody.
  if (auto target = parse_target(arguments.target); !target.ok())
    return report(context, target.error(), kUsage);
  if (auto limit = parse_duration(arguments.give_up_after); !limit.ok())
    return report(context, limit.error().with("--give-up-after"), kUsage);
  if (arguments.foreground) {
    context.exit_code = map_in_foreground(
        context, to_params(arguments), [&](const json& device) { print_mapped(context, device); });
    return;
  }
  const std::string node = context.control.empty() ? kDaemonName : context.control;
  auto device = call_node(node, "map", to_params(arguments));
  if (device.ok()) return print_mapped(context, *device);
  if (device.code() == Errc::kNotFound &&
      call_node(node, "status", json::object()).code() == Errc::kNotFound)
    return report(context, device.error().with("start one with \"braidd\", or add --foreground"));
  report(context, device.error());
}

struct UnmapArguments {
  std::string name;
  bool force = false;
};

void unmap(Context& context, const UnmapArguments& arguments) {
  auto found = find(context, arguments.name);
  if (!found.ok()) return report(context, found.error());
  if (!found->is_device)
    return report(context, make_error(Errc::kInvalid, "\"{}\" is an export, not a mapped device",
                                      arguments.name));
  const json thing = json::parse(found->thing);
  const json params{{"name", thing.at("name")}, {"force", arguments.force}};
  auto gone = call_node(found->node, "unmap", params);
  if (!gone.ok()) return report(context, gone.error());
  if (context.json)
    print_json(*gone);
  else
    std::cout << "unmapped " << gone->at("name").get<std::string>() << " ("
              << gone->at("device").get<std::string>() << ")\n";
}

}  // namespace

void add_map(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<MapArguments>();
  CLI::App* verb = app.add_subcommand("map", "give this host a remote disk as a block device");
  verb->add_option("TARGET", arguments->target, "HOST[:PORT]/EXPORT")->required();
  verb->add_option("--name", arguments->name,
                   "what to call it here (default: the export's last word)");
  verb->add_option("--front-end", arguments->front_end, "how the kernel gets it: auto, nbd or fuse")
      ->check(CLI::IsMember({"auto", "nbd", "fuse"}));
  CLI::Option* read_only =
      verb->add_flag("--read-only", arguments->read_only, "open for reading only");
  verb->add_flag("--migration", arguments->migration,
                 "a second writer, while a virtual machine moves")
      ->excludes(read_only);
  verb->add_option("--give-up-after", arguments->give_up_after,
                   "let I/O fail when the server is away for so long: 500ms, 30s, 5m, 1h or never")
      ->capture_default_str();
  verb->add_flag("--foreground", arguments->foreground, "stay, without a daemon; Ctrl-C unmaps");
  verb->footer(
      "Examples:\n"
      "  braid map 10.0.0.1/disk.img              /dev/loop0 or /dev/nbd0, as the kernel can\n"
      "  braid map 10.0.0.1:1234/vm/a.img --name a --read-only\n"
      "  braid map 10.0.0.1/disk.img --give-up-after 30s\n"
      "  braid map --foreground localhost/disk.img");
  verb->callback([&context, arguments] { map(context, *arguments); });
}

void add_unmap(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<UnmapArguments>();
  CLI::App* verb = app.add_subcommand("unmap", "take a mapped device away");
  verb->add_option("NAME", arguments->name, "its name, its /dev path, or its target")->required();
  verb->add_flag("--force", arguments->force, "even if it is in use: its users get I/O errors");
  verb->footer("Examples:\n  braid unmap disk.img\n  braid unmap /dev/loop0");
  verb->callback([&context, arguments] { unmap(context, *arguments); });
}

}  // namespace braid::cli
