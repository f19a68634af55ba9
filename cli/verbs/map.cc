// `braid map` and `braid unmap`: through the daemon, or in the foreground.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bnbd/filters.h"
#include "cli/braidd_parts.h"
#include "cli/control.h"
#include "cli/node.h"
#include "cli/table.h"
#include "cli/target.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using nlohmann::json;

namespace {

struct MapArguments {
  std::string target;
  std::string name;
  std::string front_end = "auto";
  std::string access = "rw";
  bool read_only = false;
  std::string give_up_after = "never";
  std::string key;  // a file; empty: none
  std::string lost_after = "never";
  unsigned reactors = 0;  // 0: as the node has it
  bool guard_reads = false;
  std::vector<std::string> filters;  // the first is nearest to the kernel
  bool foreground = false;
  std::string wire = "auto";
};

void print_mapped(const Context& context, const json& device) {
  if (context.json) return print_json(device);
  std::cout << text_of(device.at("device")) << "  " << text_of(device.at("name")) << ", "
            << size_text(device.at("size_bytes").get<uint64_t>()) << ", "
            << text_of(device.at("access")) << ", from " << text_of(device.at("target"))
            << " through " << text_of(device.at("front_end")) << "\n"
            << std::flush;
  print_metrics_url(device);  // of one in the foreground
}

json to_params(const MapArguments& arguments) {
  json params{{"target", arguments.target},
              {"name", arguments.name},
              {"front_end", arguments.front_end},
              {"give_up_after", arguments.give_up_after},
              {"lost_after", arguments.lost_after},
              {"access", arguments.read_only ? "ro" : arguments.access}};
  // The node leaves its working directory, and reads the file itself: no secret goes to it.
  if (arguments.reactors > 0) params["reactors"] = arguments.reactors;
  if (arguments.guard_reads) params["guard_reads"] = true;
  if (!arguments.filters.empty()) params["filters"] = arguments.filters;
  if (!arguments.key.empty()) params["key"] = std::filesystem::absolute(arguments.key).string();
  return params;
}

void map(Context& context, const MapArguments& arguments) {
  // Say what is wrong with the target before anything is asked of anybody.
  if (auto target = parse_target(arguments.target); !target.ok())
    return report(context, target.error(), kUsage);
  if (auto limit = parse_duration(arguments.give_up_after); !limit.ok())
    return report(context, limit.error().with("--give-up-after"), kUsage);
  if (auto loss = parse_duration(arguments.lost_after); !loss.ok())
    return report(context, loss.error().with("--lost-after"), kUsage);
  for (const std::string& text : arguments.filters)
    if (auto filter = bnbd::parse_filter(text); !filter.ok())
      return report(context, filter.error().with("--filter"), kUsage);
  if (arguments.foreground) {
    if (!context.control.empty()) return report(context, is_a_node_itself(), kUsage);
    context.parts->map_here(context, to_params(arguments), arguments.wire == "tcp",
                            [&](const json& device) { print_mapped(context, device); });
    return;
  }
  for (const auto& [option, value] :
       {std::pair("--device", &context.device), std::pair("--poll-budget", &context.poll_budget),
        std::pair("--metrics", &context.metrics), std::pair("--node-name", &context.node_name)})
    if (!value->empty())
      return report(
          context,
          make_error(Errc::kInvalid, "{} is a node's: start \"braidd {} {}\", or add --foreground",
                     option, option, *value),
          kUsage);
  if (arguments.wire != "auto")
    return report(context,
                  make_error(Errc::kInvalid,
                             "--wire {}: a daemon's wire is chosen when it starts (braidd --wire "
                             "{}); here it needs --foreground",
                             arguments.wire, arguments.wire),
                  kUsage);
  const bool named = !context.node_to_ask().empty();
  const std::string node = named ? context.node_to_ask() : kDaemonName;
  const CallOptions quick{.timeout_ms = 5000, .any_user = named && geteuid() == 0};
  // Mapping takes as long as it takes; a node that is not there or hung is told apart first. One
  // of an older version knows no such question, and is alive, too.
  auto alive = call_node(node, "alive", json::object(), quick);
  if (!alive.ok() && alive.code() != Errc::kNotSupported)
    return report(context,
                  alive.code() == Errc::kNotFound
                      ? alive.error().with("start one with \"braidd\", or add --foreground")
                      : alive.error());
  auto device = call_node(node, "map", to_params(arguments), {.any_user = quick.any_user});
  if (!device.ok()) return report(context, device.error());
  if (const base::Status shape = check_device(*device); !shape.ok())
    return report(context, shape.error().with("the node \"{}\" answered", node));
  print_mapped(context, *device);
}

struct UnmapArguments {
  std::string name;
  bool force = false;
};

void print_unmapped(const json& thing) {
  std::cout << "unmapped " << text_of(thing.at("name"));
  if (const json& device = thing.at("device"); !device.is_null())  // it was still being mapped
    std::cout << " (" << text_of(device) << ")";
  std::cout << "\n";
}

void unmap(Context& context, const UnmapArguments& arguments) {
  auto found = find(context, arguments.name);
  if (!found.ok()) return report(context, found.error());
  if (found->kind != ThingKind::kDevice)
    return report(context,
                  make_error(Errc::kInvalid, "\"{}\" is {}, not a mapped device", arguments.name,
                             found->kind == ThingKind::kExport ? "an export" : "a node"));
  const json thing = json::parse(found->thing);
  const json params{{"name", thing.at("name")}, {"force", arguments.force}};
  auto gone = call_node(found->node, "unmap", params,
                        {.any_user = !context.node_to_ask().empty() && geteuid() == 0});
  if (!gone.ok()) return report(context, gone.error());
  if (context.json)
    print_json(*gone);
  else
    print_unmapped(thing);
  // A node of another version does not tell.
  const auto lost = gone->find("lost");
  if (lost != gone->end() && *lost != "")
    std::cerr << "braid: data may be lost: " << text_of(*lost) << "\n";
}

}  // namespace

void add_map(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<MapArguments>();
  CLI::App* verb = app.add_subcommand("map", "give this host a remote disk as a block device");
  verb->add_option("TARGET", arguments->target,
                   "HOST[:PORT]/EXPORT; by several paths: [SOURCE@]HOST[:PORT],HOST[:PORT]/EXPORT")
      ->required();
  verb->add_option("--name", arguments->name,
                   "what to call it here (default: the export's last word)");
  verb->add_option("--front-end", arguments->front_end, "how the kernel gets it: auto, nbd or fuse")
      ->check(CLI::IsMember({"auto", "nbd", "fuse"}));
  CLI::Option* access =
      verb->add_option("--access", arguments->access,
                       "ro, rw (one writer at a time), or migration: a second writer beside the "
                       "first, while a virtual machine moves")
          ->check(CLI::IsMember({"ro", "rw", "migration"}))
          ->capture_default_str();
  verb->add_flag("--read-only", arguments->read_only, "the same as --access ro")->excludes(access);
  verb->add_option("--give-up-after", arguments->give_up_after,
                   "let I/O fail when the server is away for so long: 500ms, 30s, 5m, 1h or never")
      ->capture_default_str();
  verb->add_option("--key", arguments->key,
                   "file with this client's key, which the server has to prove to have, too "
                   "(default: that of braidd --key, if any)");
  verb->add_option("--lost-after", arguments->lost_after,
                   "stop connecting to a server that is away for so long: the device is lost then, "
                   "and fails all I/O until it is unmapped; 10m, 24h or never")
      ->capture_default_str();
  verb->add_option("--reactors", arguments->reactors,
                   "threads that carry its requests (default: braidd --map-reactors, or 1). With "
                   "nbd.ko each has a queue of the kernel's device; FUSE uses one")
      ->check(CLI::Range(1U, kReactorsMax));
  verb->add_flag("--guard-reads", arguments->guard_reads,
                 "reads land in memory of their own and are copied: for a server that is not "
                 "trusted with the memory of what reads from it");
  verb->add_option(
          "--filter", arguments->filters,
          "what happens to its requests on the way: delay:TIME, error:every=N, rate:bytes=SIZE or "
          "checksum (delay:help, say, tells all words of a kind); several "
          "may be given, the first is nearest to the kernel")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb->add_option("--wire", arguments->wire,
                   "with --foreground: auto, or tcp for a server of another user of this host (a "
                   "daemon is told when it starts)")
      ->check(CLI::IsMember({"auto", "tcp"}))
      ->capture_default_str();
  verb->add_flag("--foreground", arguments->foreground, "stay, without a daemon; Ctrl-C unmaps");
  verb->add_option("--node-name", context.node_name,
                   "with --foreground: this node's name (default: map.PID)");
  add_device_option(*verb, context);
  add_poll_option(*verb, context);
  add_metrics_option(*verb, context);
  verb->footer(
      "Examples:\n"
      "  braid map 10.0.0.1/disk.img              /dev/loop0 or /dev/nbd0, as the kernel can\n"
      "  braid map 10.0.0.1:1234/vm/a.img --name a --read-only\n"
      "  braid map 10.0.0.1,10.1.0.1/disk.img     by two paths; see braid path\n"
      "  braid map 10.0.0.1/disk.img --give-up-after 30s\n"
      "  braid map 10.0.0.1/disk.img --reactors 4   more than one core can do\n"
      "  braid map 10.0.0.1/vm/a.img --access migration   where the virtual machine moves to\n"
      "  braid map 10.0.0.1/disk.img --key /etc/braid/vm7.key\n"
      "  braid map 10.0.0.1/disk.img --filter rate:bytes=100M,ops=5000\n"
      "  braid map 10.0.0.1/disk.img --filter checksum --filter delay:read=200us,percent=1\n"
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
