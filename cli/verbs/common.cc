#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "cli/control.h"
#include "cli/metrics/sample.h"
#include "cli/table.h"
#include "cli/verbs/sampled.h"
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

json member(const json& object, const char* key) {
  return object.is_object() ? object.value(key, json()) : json();
}

json items(const json& object, const char* key) {
  json list = member(object, key);
  return list.is_array() ? list : json::array();
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

json silent_json(const std::vector<Error>& silent) {
  json list = json::array();
  for (const Error& why : silent)
    list.push_back({{"kind", to_string(why.code())}, {"message", why.message()}});
  return list;
}

Error is_a_node_itself() {
  return Error(
      Errc::kInvalid,
      "--control names a node to talk to, and this is to be one: name it with --node-name");
}

namespace {

// A node answers at once, unless it is stopped or hung: that must not hide the others, nor add up.
constexpr auto kPatience = std::chrono::seconds(5);
constexpr size_t kAskedAtOnceMax = 64;

/// Asks each node, many at once and all within `patience`; in the order of `names`.
/// `call(name, timeout_ms)`.
template <typename T, typename Call>
std::vector<Result<T>> ask_all(const std::vector<std::string>& names,
                               std::chrono::milliseconds patience, Call call) {
  const auto end = std::chrono::steady_clock::now() + patience;
  std::vector<Result<T>> answers(names.size(), Error(Errc::kTimedOut, "not asked in time"));
  std::atomic<size_t> next{0};
  const auto ask = [&] {
    for (size_t i = next++; i < names.size(); i = next++) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      if (left.count() <= 0) return;
      answers[i] = call(names[i], static_cast<int>(left.count()));
    }
  };
  std::vector<std::thread> helpers;
  try {
    while (helpers.size() + 1 < std::min(names.size(), kAskedAtOnceMax)) helpers.emplace_back(ask);
  } catch (const std::system_error&) {  // no more threads here: with those that there are
  }
  ask();
  for (std::thread& helper : helpers) helper.join();
  return answers;
}

/// `call(name, timeout_ms, any_user)`. An error if the one that was named does not answer.
template <typename T, typename Call>
base::Status ask_whom_context_names(const Context& context, std::vector<T>& answered,
                                    std::vector<Error>& silent, std::chrono::milliseconds patience,
                                    Call call) {
  const bool named = !context.node_to_ask().empty();
  std::vector<std::string> names{context.node_to_ask()};
  if (!named) {
    BRAID_TRY(names, running_nodes());
  }
  const bool any_user = named && geteuid() == 0;
  std::vector<Result<T>> answers = ask_all<T>(
      names, patience,
      [&](const std::string& name, int timeout_ms) { return call(name, timeout_ms, any_user); });
  for (size_t i = 0; i < names.size(); ++i) {
    Result<T>& answer = answers[i];
    if (answer.ok())
      answered.push_back(std::move(*answer));
    else if (named)
      return answer.error();
    else if (answer.code() != Errc::kNotFound && answer.code() != Errc::kDisconnected)
      silent.push_back(answer.error().with("node \"{}\"", names[i]));
  }
  return {};
}

}  // namespace

Result<Nodes> ask_nodes(const Context& context, const std::string& only) {
  Nodes nodes;
  const json params = only.empty() ? json::object() : json{{"only", only}};
  const auto call = [&params](const std::string& name, int timeout_ms, bool any_user) {
    return call_node(name, "status", params, {.timeout_ms = timeout_ms, .any_user = any_user});
  };
  BRAID_CHECK(ask_whom_context_names(context, nodes.answered, nodes.silent, kPatience, call));
  return nodes;
}

Result<SampledNodes> sample_nodes(const Context& context, int patience_ms) {
  SampledNodes nodes;
  BRAID_CHECK(ask_whom_context_names(context, nodes.nodes, nodes.silent,
                                     std::chrono::milliseconds(patience_ms), ask_sample));
  return nodes;
}

namespace {

/// Calls `visit(node, kind, thing)` for each thing with a name.
template <typename Visit>
void each_thing(const std::vector<json>& nodes, Visit visit) {
  for (const json& node : nodes) {
    for (const json& device : node.at("devices")) visit(node, ThingKind::kDevice, device);
    for (const json& exported : node.at("exports")) visit(node, ThingKind::kExport, exported);
  }
}

/// What a node says of itself, in the shape of a thing.
json about_node(const json& node) {
  json about = node;
  about.erase("devices");
  about.erase("exports");
  about["name"] = node.at("node");
  about["state"] = "running";
  about["why"] = node.at("notes");
  if (about["why"].empty()) about["why"].push_back("it runs, and lacks nothing that it needs");
  return about;
}

}  // namespace

Result<Found> find_export(const Context& context, const std::string& name) {
  BRAID_TRY(const Nodes nodes, ask_nodes(context, name));
  std::vector<Found> fits;
  each_thing(nodes.answered, [&](const json& node, ThingKind kind, const json& thing) {
    if (kind == ThingKind::kExport && thing.at("name") == name)
      fits.push_back({node.at("node"), kind, thing.dump()});
  });
  if (fits.size() == 1) return fits.front();
  if (fits.size() > 1)
    return make_error(Errc::kInvalid,
                      "{} nodes have an export \"{}\" open; say which with --control", fits.size(),
                      name);
  return make_error(
      Errc::kNotFound,
      "no export \"{}\" is open here: a file that nobody has open gets another size by "
      "itself (truncate -s)",
      name);
}

Result<Found> find(const Context& context, const std::string& name) {
  BRAID_TRY(Nodes nodes, ask_nodes(context, name));
  std::vector<Found> fits;
  each_thing(nodes.answered, [&](const json& node, ThingKind kind, const json& thing) {
    const bool is_device = kind == ThingKind::kDevice;
    const bool fit = thing.at("name") == name ||
                     (is_device && (thing.at("device") == name || thing.at("target") == name));
    if (fit) fits.push_back({node.at("node"), kind, thing.dump()});
  });
  // A device is meant before the export that it comes from, and both before a node.
  if (fits.size() > 1) {
    std::vector<Found> devices;
    for (Found& fit : fits)
      if (fit.kind == ThingKind::kDevice) devices.push_back(fit);
    if (devices.size() == 1) fits = std::move(devices);
  }
  for (const json& node : nodes.answered)
    if (fits.empty() && node.at("node") == name)
      fits.push_back({name, ThingKind::kNode, about_node(node).dump()});
  if (fits.size() == 1) return fits.front();
  if (fits.size() > 1)
    return make_error(Errc::kInvalid, "\"{}\" fits {} things; say which node with --control", name,
                      fits.size());
  // Nothing: so all that there is is of interest.
  BRAID_TRY(nodes, ask_nodes(context, ""));
  std::string there;
  each_thing(nodes.answered, [&](const json&, ThingKind, const json& thing) {
    there += (there.empty() ? "" : ", ") + thing.at("name").get<std::string>();
  });
  std::string silent;
  for (const Error& why : nodes.silent) silent += "; " + why.message();
  if (nodes.answered.empty())
    return make_error(Errc::kNotFound, "no device, export or node \"{}\": no Braid node {}{}", name,
                      silent.empty() ? "is running" : "answers", silent);
  return make_error(Errc::kNotFound, "no device, export or node \"{}\"; there {}: {}{}", name,
                    there.empty() ? "are" : "is", there.empty() ? "none" : there, silent);
}

}  // namespace braid::cli
