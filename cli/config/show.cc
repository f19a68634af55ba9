// A configuration for people.
#include <fmt/format.h>

#include "cli/config/config.h"
#include "cli/table.h"
#include "cli/target.h"

namespace braid::cli {

namespace {

void add_rows(Table& table, const Entry& entry) {
  for (const ConfigKey& key : config_keys()) {
    if (key.group != std::string_view(entry.group->name)) continue;
    const Setting* const setting = entry.find(key.name);
    if (setting == nullptr) {
      if (!entry.group->list && *key.fallback != 0)
        table.row({key_text(key), key.fallback, "unless it is given"});
      continue;
    }
    std::string source = setting->value.place.text();
    for (const Place& place : setting->instead) source += ", instead of " + place.text();
    std::string value = setting->value.written();
    if (setting->value.kind == ValueKind::kList && setting->value.items.size() == 1)
      value = setting->value.items[0].written();
    table.row({key_text(key), printable(value), source});
  }
}

std::string export_line(const Entry& entry) {
  for (const char* kind : {"memory", "null"})
    if (const Setting* const size = entry.find(kind)) {
      const auto bytes = parse_size(size->value.text);
      return fmt::format("export {}: {}, {}\n", printable(entry_name(entry)), kind,
                         bytes.ok() ? size_text(bytes.value()) : size->value.text);
    }
  return {};
}

}  // namespace

std::string config_table(const Config& config) {
  Table table({"KEY", "VALUE", "FROM"});
  for (const ConfigGroup& group : config_groups()) {
    if (!group.list) add_rows(table, config.group(group.name));
    for (const Entry* const entry : config.all(group.name)) add_rows(table, *entry);
  }
  return table.text();
}

std::string config_summary(const Config& config) {
  std::string text;
  if (const Setting* const root = config.group("serve").find("root"))
    text += fmt::format("export the files beneath {}\n", printable(root->value.text));
  for (const Entry* const entry : config.all("export")) text += export_line(*entry);
  for (const Entry* const entry : config.all("map"))
    text += fmt::format("map {} from {}, {}\n", entry_name(*entry),
                        printable(entry->text("target")), entry->text("access", "rw"));
  if (text.empty()) text = "nothing is exported nor mapped\n";
  return text;
}

}  // namespace braid::cli
