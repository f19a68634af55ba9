#include "cli/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/result.h"
#include "bnbd/server.h"
#include "cli/target.h"

namespace braid::cli {

const Setting* Entry::find(std::string_view key) const {
  const auto found = settings.find(key);
  return found == settings.end() ? nullptr : &found->second;
}

std::string Entry::text(std::string_view key, std::string_view fallback) const {
  BRAID_ASSERT(find_key(group->name, key) != nullptr);
  const Setting* const found = find(key);
  return found == nullptr ? std::string(fallback) : found->value.text;
}

bool Entry::truth(std::string_view key) const {
  BRAID_ASSERT(find_key(group->name, key) != nullptr);
  const Setting* const found = find(key);
  return found != nullptr && found->value.truth;
}

unsigned Entry::count(std::string_view key, unsigned fallback) const {
  BRAID_ASSERT(find_key(group->name, key) != nullptr);
  const Setting* const found = find(key);
  return found == nullptr ? fallback : static_cast<unsigned>(found->value.integer);
}

std::vector<std::string> Entry::texts(std::string_view key) const {
  BRAID_ASSERT(find_key(group->name, key) != nullptr);
  std::vector<std::string> all;
  if (const Setting* const found = find(key))
    for (const Value& item : found->value.items) all.push_back(item.text);
  return all;
}

std::string entry_name(const Entry& entry) {
  if (const Setting* const name = entry.find("name"))
    return entry.group->name == std::string_view("export")
               ? bnbd::normal_export_name(name->value.text)
               : name->value.text;
  if (const Setting* const target = entry.find("target"))
    if (const auto parsed = parse_target(target->value.text); parsed.ok())
      return default_device_name(parsed.value().export_name);
  return {};
}

Config::Config() {
  for (const ConfigGroup& group : config_groups()) {
    if (group.list) continue;
    Entry& entry = groups[group.name];
    entry.group = &group;
  }
}

const Entry& Config::group(std::string_view name) const {
  const auto found = groups.find(name);
  BRAID_ASSERT(found != groups.end());
  return found->second;
}

std::vector<const Entry*> Config::all(std::string_view group) const {
  std::vector<const Entry*> some;
  for (const Entry& entry : entries)
    if (entry.group->name == group) some.push_back(&entry);
  return some;
}

namespace {

std::string did_you_mean(std::string_view typed, std::span<const std::string_view> words,
                         const char* what) {
  const std::string_view meant = nearest(typed, words);
  if (!meant.empty()) return fmt::format("did you mean \"{}\"?", meant);
  std::string all;
  for (const std::string_view word : words)
    all += fmt::format("{}{}", all.empty() ? "" : ", ", word);
  return fmt::format("{}{}", what, all);
}

class Reader {
 public:
  Reader(Config& config, std::vector<Problem>& problems) : config_(config), problems_(problems) {}

  void read(const Value& root) {
    for (const Value& member : root.items) {
      const ConfigGroup* const group = find_group(member.key);
      if (group == nullptr)
        unknown_group(member);
      else if (group->list)
        read_list(*group, member);
      else
        read_group(*group, member);
    }
  }

 private:
  void wrong(const Place& place, std::string what) {
    problems_.push_back({place, std::move(what)});
  }

  void unknown_group(const Value& member) {
    std::string belongs;
    for (const ConfigKey& key : config_keys())
      if (key.name == member.key && member.kind != ValueKind::kTable)
        belongs += (belongs.empty() ? "" : " or ") + group_text(*find_group(key.group));
    if (!belongs.empty())
      return wrong(member.key_place, fmt::format("\"{}\" stands in no group; it belongs into {}",
                                                 member.key, belongs));
    std::vector<std::string_view> words;
    for (const ConfigGroup& group : config_groups()) words.emplace_back(group.name);
    wrong(member.key_place, fmt::format("there is no group \"{}\"; {}", member.key,
                                        did_you_mean(member.key, words, "there are: ")));
  }

  void read_group(const ConfigGroup& group, const Value& member) {
    if (member.kind != ValueKind::kTable)
      return wrong(member.key_place,
                   fmt::format("want {} and below it its keys, once in a file", group_text(group)));
    Entry& entry = config_.groups.find(group.name)->second;
    if (entry.place.line == 0) entry.place = member.key_place;
    read_keys(group, member, entry);
  }

  void read_list(const ConfigGroup& group, const Value& member) {
    const auto is_table = [](const Value& item) { return item.kind == ValueKind::kTable; };
    if (member.kind != ValueKind::kList ||
        !std::all_of(member.items.begin(), member.items.end(), is_table))
      return wrong(member.key_place, fmt::format("want {} and below it its keys, for each of them",
                                                 group_text(group)));
    for (const Value& item : member.items) {
      Entry entry;
      entry.group = &group;
      entry.place = item.place;
      read_keys(group, item, entry);
      config_.entries.push_back(std::move(entry));
    }
  }

  void read_keys(const ConfigGroup& group, const Value& table, Entry& entry) {
    for (const Value& member : table.items) {
      const ConfigKey* const key = find_key(group.name, member.key);
      if (key == nullptr) {
        unknown_key(group, member);
        continue;
      }
      std::variant<Value, Problem> taken = take_value(*key, member);
      if (auto* problem = std::get_if<Problem>(&taken)) {
        problems_.push_back(std::move(*problem));
        // Known to be given, so that nobody complains of its absence, too.
        if (group.list) entry.settings.emplace(member.key, Setting{member, {}, /*wrong=*/true});
        continue;
      }
      Setting& setting = entry.settings[member.key];
      if (setting.value.place.line > 0) setting.instead.push_back(setting.value.place);
      setting.value = std::move(*std::get_if<Value>(&taken));
    }
  }

  void unknown_key(const ConfigGroup& group, const Value& member) {
    std::vector<std::string_view> words;
    for (const ConfigKey& key : config_keys())
      if (key.group == std::string_view(group.name)) words.emplace_back(key.name);
    wrong(member.key_place, fmt::format("{} has no key \"{}\"; {}", group_text(group), member.key,
                                        did_you_mean(member.key, words, "it has: ")));
  }

  Config& config_;
  std::vector<Problem>& problems_;
};

}  // namespace

void read_config(std::string_view text, const std::string& file, Config& config,
                 std::vector<Problem>& problems) {
  config.files.push_back(file);
  std::variant<Value, Problem> parsed = parse_toml(text, file);
  if (auto* problem = std::get_if<Problem>(&parsed))
    problems.push_back(std::move(*problem));
  else
    Reader(config, problems).read(*std::get_if<Value>(&parsed));
}

bool any_error(const std::vector<Problem>& problems) {
  return std::any_of(problems.begin(), problems.end(),
                     [](const Problem& problem) { return !problem.warning; });
}

Value typed_value(const ConfigKey& key, const std::vector<std::string>& texts) {
  Value value;
  value.place.file = fmt::format("{} on the command line", key.option);
  const std::string last = texts.empty() ? "" : texts.back();
  const bool path = key.kind == KeyKind::kPath || key.kind == KeyKind::kKeyFile;
  value.text = path && !last.empty() ? std::filesystem::absolute(last).string() : last;
  if (key.kind == KeyKind::kTruth) {
    value.kind = ValueKind::kTruth;
    value.truth = last != "false";
  } else if (key.kind == KeyKind::kCount) {
    value.kind = ValueKind::kInteger;
    value.integer = std::strtoll(last.c_str(), nullptr, 10);
  } else if (key.kind == KeyKind::kAddresses || key.kind == KeyKind::kFilters) {
    value.kind = ValueKind::kList;
    for (const std::string& text : texts) {
      Value item;
      item.place = value.place;
      item.text = text;
      value.items.push_back(std::move(item));
    }
  }
  return value;
}

std::string override_with(Config& config, const ConfigKey& key, Value value) {
  Setting& setting = config.groups.find(key.group)->second.settings[key.name];
  const Value before = std::exchange(setting.value, std::move(value));
  if (before.place.line == 0) return {};
  setting.instead.push_back(before.place);
  return fmt::format("{}: {} {} on the command line overrides {} = {}", before.place.text(),
                     key.option, setting.value.written(), key_text(key), before.written());
}

std::string override_export(Config& config, const ConfigKey& kind, const SyntheticExport& typed) {
  const auto text = [&](const std::string& words) {
    Value value;
    value.text = words;
    value.place.file = fmt::format("{} on the command line", kind.option);
    return Setting{std::move(value), {}, false};
  };
  Entry entry;
  entry.group = find_group("export");
  entry.place.file = fmt::format("{} on the command line", kind.option);
  entry.settings.emplace("name", text(typed.name));
  entry.settings.emplace(kind.name, text(std::to_string(typed.size_bytes)));
  const std::string name = entry_name(entry);
  for (Entry& other : config.entries) {
    if (other.group != entry.group || entry_name(other) != name || other.place.line == 0) continue;
    const std::string said =
        fmt::format("{}: {} {} on the command line takes the place of this [[export]]",
                    other.place.text(), kind.option, typed.name);
    other = std::move(entry);
    return said;
  }
  config.entries.push_back(std::move(entry));
  return {};
}

}  // namespace braid::cli
