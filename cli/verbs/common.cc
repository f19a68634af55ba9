#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/control.h"
#include "cli/table.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using nlohmann::json;

std::string text_of(const json& value) {
  if (value.is_string()) return printable(value.get<std::string>());
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump();
}

void print_json(const json& value) {
  std::cout << value.dump(2, ' ', false, json::error_handler_t::replace) << "\n" << std::flush;
}

void report(Context& context, const Error& error, int exit_code) {
  context.exit_code = exit_code;
  if (context.json)
    print_json({{"error", {{"kind", to_string(error.code())}, {"message", error.message()}}}});
  else
    std::cerr << "braid: " << printable(error.message()) << "\n";
}

Error is_a_node_itself() {
  return Error(
      Errc::kInvalid,
      "--control names a node to talk to, and this is to be one: name it with --node-name");
}

Result<Nodes> ask_nodes(const Context& context) {
  // A node answers at once, unless it is stopped or hung: that must not hide the others.
  constexpr int kTimeoutMs = 5000;
  const bool named = !context.node_to_ask().empty();
  std::vector<std::string> names{context.node_to_ask()};
  if (!named) {
    BRAID_TRY(names, running_nodes());
  }
  Nodes nodes;
  for (const std::string& name : names) {
    auto status = call_node(name, "status", json::object(),
                            {.timeout_ms = kTimeoutMs, .any_user = named && geteuid() == 0});
    if (status.ok())
      nodes.answered.push_back(std::move(*status));
    else if (named)
      return status.error();
    else if (status.code() != Errc::kNotFound && status.code() != Errc::kDisconnected)
      nodes.silent.push_back(status.error().with("node \"{}\"", name));
  }
  return nodes;
}

namespace {

/// Calls `visit(node, is_device, thing)` for each thing with a name.
template <typename Visit>
void each_thing(const std::vector<json>& nodes, Visit visit) {
  for (const json& node : nodes) {
    for (const json& device : node.at("devices")) visit(node, true, device);
    for (const json& exported : node.at("exports")) visit(node, false, exported);
  }
}

}  // namespace

Result<Found> find(const Context& context, const std::string& name) {
  BRAID_TRY(const Nodes nodes, ask_nodes(context));
  std::vector<Found> fits;
  std::string there;
  each_thing(nodes.answered, [&](const json& node, bool is_device, const json& thing) {
    const std::string own = thing.at("name");
    const bool fit =
        own == name || (is_device && (thing.at("device") == name || thing.at("target") == name));
    if (fit) fits.push_back({node.at("node"), is_device, thing.dump()});
    there += (there.empty() ? "" : ", ") + own;
  });
  // A device is meant before the export that it comes from.
  if (fits.size() > 1) {
    std::vector<Found> devices;
    for (Found& fit : fits)
      if (fit.is_device) devices.push_back(fit);
    if (devices.size() == 1) fits = std::move(devices);
  }
  if (fits.size() == 1) return fits.front();
  if (fits.size() > 1)
    return make_error(Errc::kInvalid, "\"{}\" fits {} things; say which node with --control", name,
                      fits.size());
  std::string silent;
  for (const Error& why : nodes.silent) silent += "; " + why.message();
  if (nodes.answered.empty())
    return make_error(Errc::kNotFound, "no device or export \"{}\": no Braid node {}{}", name,
                      silent.empty() ? "is running" : "answers", silent);
  return make_error(Errc::kNotFound, "no device or export \"{}\"; there {}: {}{}", name,
                    there.empty() ? "are" : "is", there.empty() ? "none" : there, silent);
}

}  // namespace braid::cli
