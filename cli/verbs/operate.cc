// `braid close`, `close-session`, `remap`, `resize`: what an operator does when a client hangs, a
// device was taken away, or a disk is to have another size.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/control.h"
#include "cli/target.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using nlohmann::json;

namespace {

CallOptions call_options(const Context& context) {
  return {.any_user = !context.node_to_ask().empty() && geteuid() == 0};
}

struct CloseArguments {
  std::string exported;
  std::string session;
};

struct Closed {
  unsigned devices = 0;
  unsigned sessions = 0;
  unsigned kept = 0;
};

base::Error nothing_to_close(const CloseArguments& arguments) {
  const std::string session =
      arguments.session.empty() ? "no session" : "no session \"" + arguments.session + "\"";
  return make_error(
      Errc::kNotFound, "nothing to close: {}{}; see braid sessions", session,
      arguments.exported.empty() ? "" : " that has \"" + arguments.exported + "\" open");
}

std::string count_text(unsigned count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// Each node that serves what is meant is asked; the others have nothing to close.
void close_on_nodes(Context& context, const CloseArguments& arguments) {
  auto nodes = ask_nodes(context);
  if (!nodes.ok()) return report(context, nodes.error());
  const json params{{"export", arguments.exported}, {"session", arguments.session}};
  Closed all;
  for (const json& node : nodes->answered) {
    if (!node.at("server").is_object()) continue;
    auto answer = call_node(node.at("node"), "close", params, call_options(context));
    if (!answer.ok() && answer.code() != Errc::kNotFound) return report(context, answer.error());
    if (!answer.ok()) continue;
    all.devices += answer->value("closed", 0U);
    all.sessions += answer->value("sessions_ended", 0U);
    all.kept += answer->value("sessions_kept", 0U);
  }
  if (all.devices + all.sessions == 0) return report(context, nothing_to_close(arguments));
  if (context.json)
    return print_json(
        {{"closed", all.devices}, {"sessions_ended", all.sessions}, {"sessions_kept", all.kept}});
  std::cout << "closed " << count_text(all.devices, "device");
  if (all.sessions > 0) std::cout << ", ended " << count_text(all.sessions, "session");
  if (all.devices > 0)
    std::cout << "; a Braid client holds its I/O until \"braid remap\" or \"braid unmap\" there";
  if (all.kept > 0)
    std::cout << "; the connections of " << count_text(all.kept, "client")
              << " of another implementation stay, as it would open its devices again";
  std::cout << "\n";
}

void remap(Context& context, const std::string& name) {
  auto found = find(context, name);
  if (!found.ok()) return report(context, found.error());
  if (found->kind != ThingKind::kDevice)
    return report(context, make_error(Errc::kInvalid, "\"{}\" is no mapped device", name));
  const json thing = json::parse(found->thing);
  auto device =
      call_node(found->node, "remap", {{"name", thing.at("name")}}, call_options(context));
  if (!device.ok()) return report(context, device.error());
  if (context.json) return print_json(*device);
  std::cout << text_of(thing.at("name")) << " is open again\n";
}

struct ResizeArguments {
  std::string exported;
  std::string size;
  bool force = false;
};

void resize(Context& context, const ResizeArguments& arguments) {
  if (auto size = parse_size(arguments.size); !size.ok())
    return report(context, size.error(), kUsage);
  auto found = find_export(context, arguments.exported);
  if (!found.ok()) return report(context, found.error());
  const json params{
      {"export", arguments.exported}, {"size", arguments.size}, {"force", arguments.force}};
  auto done = call_node(found->node, "resize", params, call_options(context));
  if (!done.ok()) return report(context, done.error());
  if (context.json) return print_json(*done);
  std::cout << arguments.exported << " has " << size_text(done->value("size_bytes", uint64_t{0}))
            << " now\n";
}

}  // namespace

void add_close(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<CloseArguments>();
  CLI::App* verb = app.add_subcommand(
      "close", "at the server: take an export from the clients that have it open");
  verb->add_option("EXPORT", arguments->exported, "its name")->required();
  verb->add_option("--session", arguments->session, "only from this client session");
  verb->footer(
      "What a client sends from now on is refused; what is at the disk ends first. A Braid client\n"
      "holds its I/O and does not come back by itself.\n"
      "Examples:\n  braid close disk.img\n  braid close disk.img --session vm7.daemon");
  verb->callback([&context, arguments] { close_on_nodes(context, *arguments); });
}

void add_close_session(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<CloseArguments>();
  CLI::App* verb = app.add_subcommand(
      "close-session",
      "at the server: take all that a client session has open from it, and end its connections");
  verb->add_option("SESSION", arguments->session, "its name, see braid sessions")->required();
  verb->footer(
      "A Braid client comes back without the devices; \"braid remap\" there opens them again. To\n"
      "keep it out take its key away (braid key reload).\n"
      "Examples:\n  braid close-session vm7.daemon");
  verb->callback([&context, arguments] { close_on_nodes(context, *arguments); });
}

void add_remap(CLI::App& app, Context& context) {
  auto name = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand(
      "remap", "open a mapped device again that the server's operator has closed, or that shrank");
  verb->add_option("NAME", *name, "its name, its /dev path, or its target")->required();
  verb->footer("Examples:\n  braid remap disk.img\n  braid remap /dev/loop0");
  verb->callback([&context, name] { remap(context, *name); });
}

void add_resize(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<ResizeArguments>();
  CLI::App* verb = app.add_subcommand(
      "resize", "at the server: give a file that clients have open another size, and tell them");
  verb->add_option("EXPORT", arguments->exported, "its name")->required();
  verb->add_option("SIZE", arguments->size, "for example 20G")->required();
  verb->add_flag("--force", arguments->force,
                 "shrink it although clients have it open: what they keep beyond is lost");
  verb->footer("Examples:\n  braid resize disk.img 20G\n  braid resize disk.img 5G --force");
  verb->callback([&context, arguments] { resize(context, *arguments); });
}

}  // namespace braid::cli
