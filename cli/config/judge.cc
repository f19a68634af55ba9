// What only shows when all files have been read; and the node that they describe.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bnbd/server.h"
#include "cli/config/config.h"
#include "cli/control.h"
#include "cli/hcas.h"
#include "cli/map_words.h"
#include "cli/metrics/options.h"
#include "cli/serve_arguments.h"
#include "cli/target.h"

namespace braid::cli {

using base::Result;
using nlohmann::json;

namespace {

constexpr const char* kKinds[] = {"memory", "null"};

/// The place of what gives an entry its name.
Place name_place(const Entry& entry) {
  for (const char* key : {"name", "target"})
    if (const Setting* const found = entry.find(key)) return found->value.place;
  return entry.place;
}

/// Its name as it is written, and as others know it where that is another.
std::string name_text(const Entry& entry) {
  const std::string name = entry_name(entry);
  const Setting* const written = entry.find("name");
  if (written == nullptr || written->value.text == name) return fmt::format("\"{}\"", name);
  return fmt::format("\"{}\", which is \"{}\",", written->value.text, name);
}

void judge_names(const Config& config, const char* group, std::vector<Problem>& problems) {
  std::map<std::string, Place> seen;
  for (const Entry* const entry : config.all(group)) {
    const std::string name = entry_name(*entry);
    if (name.empty()) continue;
    const Place place = name_place(*entry);
    const auto [first, added] = seen.emplace(name, place);
    if (!added)
      wrong(problems, place,
            fmt::format("{} {} is there twice, the first time at {}{}", group_text(*entry->group),
                        name_text(*entry), first->second.text(),
                        entry->find("name") == nullptr ? "; give one a name" : ""));
  }
}

void judge_node(const Entry& node, std::vector<Problem>& problems) {
  if (const Setting* const name = node.find("name"))
    if (const auto allowed = check_node_name(name->value.text); !allowed.ok())
      wrong(problems, name->value.place, fmt::format("[node] name: {}", allowed.error().message()));
  if (const Setting* const device = node.find("device"))
    if (const auto names = parse_devices(device->value.text); !names.ok())
      wrong(problems, device->value.place,
            fmt::format("[node] device: {}", names.error().message()));
}

void judge_export(const Entry& entry, std::vector<Problem>& problems) {
  const Setting* const name = entry.find("name");
  if (name == nullptr)
    wrong(problems, entry.place, "[[export]] without a name: want name = \"...\"");
  else if (const auto allowed = bnbd::check_export_name(name->value.text);
           !name->wrong && !allowed.ok())
    wrong(problems, name->value.place,
          fmt::format("[[export]] name: {}", allowed.error().message()));
  std::string kinds;
  unsigned given = 0;
  for (const char* kind : kKinds) {
    kinds += fmt::format("{}{}", kinds.empty() ? "" : ", ", kind);
    if (entry.find(kind) != nullptr) ++given;
  }
  if (given != 1)
    wrong(problems, entry.place,
          fmt::format("[[export]] \"{}\" has {} of {}: want one", entry_name(entry),
                      given == 0 ? "none" : "several", kinds));
}

void judge_map(const Entry& entry, std::vector<Problem>& problems) {
  if (entry.find("target") == nullptr)
    wrong(problems, entry.place, "[[map]] without a target: want target = \"HOST[:PORT]/EXPORT\"");
  const auto access = parse_access(entry.text("access", "rw"));
  const Setting* const filters = entry.find("filters");
  if (filters == nullptr || filters->wrong || !access.ok()) return;
  const auto specs = parse_filters(entry.texts("filters"), access.value());
  if (!specs.ok())
    wrong(problems, filters->value.place,
          fmt::format("[[map]] filters: {}", specs.error().message()));
}

uint64_t max_io_bytes(const Entry& serve) {
  const auto bytes = parse_size(serve.text("max_io", "1M"));
  return bytes.ok() ? bytes.value() : 0;
}

void judge_serve(const Config& config, std::vector<Problem>& problems) {
  const Entry& serve = config.group("serve");
  if (serve.find("root") == nullptr && config.all("export").empty()) {
    for (const auto& [name, setting] : serve.settings)
      if (setting.value.place.line > 0)
        wrong(
            problems, setting.value.place,
            fmt::format("[serve] {} says how to export, but nothing is to be exported: add [serve] "
                        "root = \"DIRECTORY\" or an [[export]]",
                        name));
    return;
  }
  const auto exports = config.all("export");
  const Setting* const huge = serve.find("huge_pages");
  const bool of_none = std::none_of(exports.begin(), exports.end(), [](const Entry* entry) {
    return entry->find("memory") != nullptr;
  });
  if (huge != nullptr && serve.truth("huge_pages") && of_none && huge->value.place.line > 0)
    wrong(problems, huge->value.place,
          "[serve] huge_pages is how memory is exported, and none is: add an [[export]] with "
          "memory, or leave it out");
  const Setting* const depth = serve.find("queue_depth");
  const uint64_t io_bytes = max_io_bytes(serve);
  if (depth == nullptr && serve.find("max_io") == nullptr) return;
  const auto given = static_cast<int64_t>(serve.count("queue_depth", 128));
  const auto most = static_cast<int64_t>(queue_depth_max(static_cast<uint32_t>(io_bytes)));
  const Place& place = (depth != nullptr ? depth : serve.find("max_io"))->value.place;
  // What was typed is told of in the words of the command line, see ServeArguments.
  if (given > most && place.line > 0)
    wrong(
        problems, place,
        fmt::format("[serve] queue_depth = {}: with max_io {} at most {}; a smaller max_io allows "
                    "more",
                    given, size_text(io_bytes), most));
}

json json_of(const Value& value) {
  switch (value.kind) {
    case ValueKind::kTruth:
      return value.truth;
    case ValueKind::kInteger:
      return value.integer;
    case ValueKind::kList: {
      json list = json::array();
      for (const Value& item : value.items) list.push_back(json_of(item));
      return list;
    }
    default:
      return value.text;
  }
}

Result<std::vector<SyntheticExport>> exports_of(const Config& config, const char* kind) {
  std::vector<SyntheticExport> exports;
  for (const Entry* const entry : config.all("export")) {
    const Setting* const size = entry->find(kind);
    if (size == nullptr) continue;
    BRAID_TRY(const uint64_t size_bytes, parse_size(size->value.text));
    exports.push_back({entry_name(*entry), size_bytes});
  }
  return exports;
}

Result<ServeOptions> serve_options(const Config& config) {
  const Entry& serve = config.group("serve");
  ServeArguments arguments;
  arguments.root = serve.text("root");
  arguments.listen = serve.texts("listen");
  arguments.wire = config.group("node").text("wire", "auto");
  arguments.keys = serve.text("keys");
  arguments.read_only = serve.truth("read_only");
  arguments.block_devices = serve.truth("block_devices");
  arguments.huge_pages = serve.truth("huge_pages");
  arguments.reactors = serve.count("reactors", arguments.reactors);
  arguments.queue_depth = serve.count("queue_depth", arguments.queue_depth);
  arguments.max_io = serve.text("max_io", arguments.max_io);
  arguments.chunk_guard = serve.text("chunk_guard", arguments.chunk_guard);
  BRAID_TRY(ServeOptions options, arguments.options_without_exports());
  BRAID_TRY(options.memory, exports_of(config, "memory"));
  BRAID_TRY(options.null, exports_of(config, "null"));
  BRAID_CHECK(check_huge_pages(options));
  return options;
}

}  // namespace

void judge_config(const Config& config, std::vector<Problem>& problems) {
  judge_node(config.group("node"), problems);
  for (const Entry* const entry : config.all("export")) judge_export(*entry, problems);
  for (const Entry* const entry : config.all("map")) judge_map(*entry, problems);
  judge_names(config, "export", problems);
  judge_names(config, "map", problems);
  judge_serve(config, problems);
}

Result<NodeOptions> node_options(const Config& config) {
  const Entry& node = config.group("node");
  NodeOptions options;
  options.name = node.text("name", "daemon");
  options.role = "daemon";
  options.device = node.text("device");
  options.key_file = node.text("key");
  options.map_reactors = node.count("map_reactors", 1);
  BRAID_TRY(options.poll_budget_ns, parse_poll_budget(node.text("poll_budget", "50us")));
  options.tcp_within_host = node.text("wire", "auto") == "tcp";
  if (const std::string listen = config.group("metrics").text("listen"); !listen.empty()) {
    BRAID_TRY(options.metrics, parse_metrics(listen, "[metrics] listen"));
  }
  options.io_process = true;
  if (config.group("serve").find("root") != nullptr || !config.all("export").empty()) {
    BRAID_TRY(options.serve, serve_options(config));
  }
  for (const Entry* const entry : config.all("map")) {
    WantedMap wanted;
    wanted.name = entry_name(*entry);
    wanted.target = entry->text("target");
    wanted.source = entry->place.text();
    json params = json::object();
    for (const auto& [key, setting] : entry->settings) params[key] = json_of(setting.value);
    params["name"] = wanted.name;
    wanted.params = params.dump();
    options.maps.push_back(std::move(wanted));
  }
  return options;
}

std::string config_json(const Config& config) {
  const auto of_entry = [](const Entry& entry) {
    json members = json::object();
    for (const ConfigKey& key : config_keys()) {
      if (key.group != std::string_view(entry.group->name)) continue;
      const Setting* const setting = entry.find(key.name);
      if (setting == nullptr) continue;
      json instead = json::array();
      for (const Place& place : setting->instead) instead.push_back(place.text());
      members[key.name] = {{"value", json_of(setting->value)},
                           {"source", setting->value.place.text()},
                           {"instead_of", instead}};
    }
    return members;
  };
  json all{{"files", config.files}};
  for (const ConfigGroup& group : config_groups()) {
    if (!group.list) {
      all[group.name] = of_entry(config.group(group.name));
      continue;
    }
    all[group.name] = json::array();
    for (const Entry* const entry : config.all(group.name))
      all[group.name].push_back(of_entry(*entry));
  }
  return all.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace braid::cli
