#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/control.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using nlohmann::json;

void print_json(const json& value) {
  std::cout << value.dump(2, ' ', false, json::error_handler_t::replace) << "\n" << std::flush;
}

void report(Context& context, const Error& error, int exit_code) {
  context.exit_code = exit_code;
  if (context.json)
    print_json({{"error", {{"kind", to_string(error.code())}, {"message", error.message()}}}});
  else
    std::cerr << "braid: " << error.message() << "\n";
}

Result<std::vector<json>> statuses(const Context& context) {
  std::vector<std::string> names{context.control};
  if (context.control.empty()) {
    BRAID_TRY(names, running_nodes());
  }
  std::vector<json> found;
  for (const std::string& name : names) {
    auto status = call_node(name, "status", json::object());
    if (status.ok())
      found.push_back(std::move(*status));
    else if (!context.control.empty())
      return status.error();
  }
  return found;
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
  BRAID_TRY(const std::vector<json> nodes, statuses(context));
  std::vector<Found> fits;
  std::string there;
  each_thing(nodes, [&](const json& node, bool is_device, const json& thing) {
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
  if (nodes.empty())
    return make_error(Errc::kNotFound, "no device or export \"{}\": no Braid node is running",
                      name);
  return make_error(Errc::kNotFound, "no device or export \"{}\"; there {}: {}", name,
                    there.empty() ? "are" : "is", there.empty() ? "none" : there);
}

}  // namespace braid::cli
