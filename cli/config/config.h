// The configuration of braidd: what its files say, and its command line laid over them.
//
// Files are read in the order of load_config(); the values of [group]s that come later take the
// place of those before, entries of [[group]]s add up, and two of one name are an error that names
// both places. Everything that is wrong is told, not only the first.
// Threads: any; nothing is shared.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/config/keys.h"
#include "cli/config/toml.h"
#include "cli/node.h"

namespace braid::cli {

inline constexpr const char* kConfigFile = "/etc/braid/braid.toml";

struct Setting {
  Value value;                 // as take_value() gives it; its place is where it comes from
  std::vector<Place> instead;  // of what it took the place of, the latest last
  bool wrong = false;          // and told to be: there, but nothing to rely on, nor to repeat
};

/// What a [group] says in all files together, or one [[group]].
struct Entry {
  const ConfigGroup* group = nullptr;
  Place place;  // where it begins first
  std::map<std::string, Setting, std::less<>> settings;

  const Setting* find(std::string_view key) const;  // or null
  std::string text(std::string_view key, std::string_view fallback = "") const;
  bool truth(std::string_view key) const;
  unsigned count(std::string_view key, unsigned fallback) const;
  std::vector<std::string> texts(std::string_view key) const;
};

/// "disk": the name of a [[map]], or of an [[export]] in the one spelling (bnbd/server.h). Empty:
/// it has none.
std::string entry_name(const Entry& entry);

struct Config {
  std::map<std::string, Entry, std::less<>> groups;  // each [group], also those that say nothing
  std::vector<Entry> entries;                        // each [[group]], in order
  std::vector<std::string> files;                    // that were read, in order

  Config();
  const Entry& group(std::string_view name) const;
  std::vector<const Entry*> all(std::string_view group) const;
};

/// One text, as `file`: what it says is added to `config`, what is wrong with it to `problems`.
void read_config(std::string_view text, const std::string& file, Config& config,
                 std::vector<Problem>& problems);

/// The file at `path` and then, in the order of their names, "*.toml" of the folder beside it that
/// is called like it with ".d" (braid.toml, braid.d). That there is none of these is a problem only
/// if `needed`. Blocks.
Config load_config(const std::string& path, bool needed, std::vector<Problem>& problems);

/// What only shows in all together: names that are there twice, entries that say too little, what
/// does not fit together; and of single values what is also judged when they were typed. Looks at
/// no file. Where it finds no error, node_options() has none.
void judge_config(const Config& config, std::vector<Problem>& problems);

/// Whether the files and folders that it names are there and right: key files, the root. Blocks.
void judge_files(const Config& config, std::vector<Problem>& problems);

bool any_error(const std::vector<Problem>& problems);

/// A value that was typed behind an option of braidd, of the key that it overrides. Text is taken
/// as it is; a relative path becomes an absolute one.
Value typed_value(const ConfigKey& key, const std::vector<std::string>& texts);
/// Sets it in `config`. The sentence that says what it overrides, if it does.
std::string override_with(Config& config, const ConfigKey& key, Value value);
/// An export that was typed, in the place of one of the same name.
std::string override_export(Config& config, const ConfigKey& kind, const SyntheticExport& typed);

/// What a daemon so configured is to do: all but its maps' files was judged.
base::Result<NodeOptions> node_options(const Config& config);

/// For people: each value and where it comes from.
std::string config_table(const Config& config);
/// The same for programs: {"files": [..], "node": {"name": {"value": .., "source": ..}, ..},
/// "export": [{..}], ..}.
std::string config_json(const Config& config);
/// What it would export and map, a line each.
std::string config_summary(const Config& config);

}  // namespace braid::cli
