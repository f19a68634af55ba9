// All keys of braid.toml: one table, by which files are read and judged, the command line of braidd
// is laid over them, and docs/configuration.md is made. Pure; any thread.
//
// To add a key: a row in keys.cc, and whoever needs it asks Config for it by its name. A key of
// [[map]] is a parameter of the control call "map", of that name: it needs nothing but its row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "cli/config/toml.h"

namespace braid::cli {

enum class KeyKind : uint8_t {
  kText,        // text, not empty
  kPath,        // an absolute path
  kKeyFile,     // likewise, of a file of keys: a key itself is refused, and never repeated
  kWord,        // one of `words`
  kTruth,       // true or false
  kCount,       // an integer from `least` to `most`
  kSize,        // "64M", or bytes: from `least` to `most`, in 4 KiB; most 0: no bound
  kDuration,    // "5s", "never"
  kPollBudget,  // "50us", "0", "never"
  kAddresses,   // "10.0.0.1:1234", or a list of such; no names of hosts
  kTarget,      // "10.0.0.1/disk.img"
  kDeviceName,  // of a block device of this host
  kMetrics,     // "127.0.0.1:9943"
  kFilters,     // "delay:read=1ms", or a list of such
};

struct ConfigGroup {
  const char* name;
  bool list;         // [[name]], as often as one likes; else [name], once in each file
  const char* what;  // for docs/configuration.md
};

struct ConfigKey {
  const char* group;
  const char* name;
  KeyKind kind;
  const char* option;      // of braidd, which overrides it; empty: there is none
  const char* fallback;    // what holds without it, as one would write it; empty: nothing
  const char* what;        // for docs/configuration.md
  const char* words = "";  // "auto, nbd, fuse"
  int64_t least = 0;
  int64_t most = 0;
};

std::span<const ConfigGroup> config_groups();
std::span<const ConfigKey> config_keys();
const ConfigGroup* find_group(std::string_view name);                      // or null
const ConfigKey* find_key(std::string_view group, std::string_view name);  // or null

/// "a number from 2 to 4096": what would be right.
std::string wanted_by(const ConfigKey& key);

/// The value in the form that the key's users know: a list where it may be one, a size as text.
/// Else what is wrong, with its place: `[serve] queue_depth = 1: want a number from 2 to 4096`.
std::variant<Value, Problem> take_value(const ConfigKey& key, const Value& value);

/// "[serve] root", "[[map]] target".
std::string key_text(const ConfigKey& key);
std::string group_text(const ConfigGroup& group);

/// The word that was meant by `typed`; empty: none is near. By edit distance (insert, delete,
/// replace, swap of neighbours).
std::string_view nearest(std::string_view typed, std::span<const std::string_view> words);

/// The tables of docs/configuration.md.
std::string keys_reference();
/// The same for programs: {"groups": [{"name", "list", "what", "keys": [..]}, ..]}, each key
/// {"name", "wants", "default", "what", "option"}. A default or an option that is missing is null.
std::string keys_json();

}  // namespace braid::cli
