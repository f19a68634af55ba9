#include "cli/config/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "bnbd/backends.h"
#include "cli/node.h"

namespace braid::cli {

namespace {

constexpr ConfigGroup kGroups[] = {
    {"node", false, "the daemon itself"},
    {"serve", false, "how it exports, and the files beneath a directory"},
    {"metrics", false, "what it counts, for Prometheus"},
    {"export", true, "an export with a name of its own"},
    {"map", true, "a remote disk that this host is given as a block device when the daemon starts"},
};

constexpr int64_t kMebibyte = 1 << 20;

using enum KeyKind;
constexpr ConfigKey kKeys[] = {
    {"node", "name", kText, "--node-name", "\"daemon\"", "its name, for `braid --control`"},
    {"node", "device", kText, "--device", "\"soft0\"",
     "what carries its data: RDMA devices with commas between them, `rdma` for all of them, or "
     "`soft0`, the software HCA"},
    {"node", "wire", kWord, "--wire", "\"auto\"",
     "of the software HCA: shared memory inside this host and TCP to others, or TCP for all",
     "auto, tcp"},
    {"node", "key", kKeyFile, "--key", "", "file with the key of maps that name none"},
    {"node", "map_reactors", kCount, "--map-reactors", "1",
     "threads that carry the requests of a mapped device that names no number", "", 1,
     kReactorsMax},
    {"node", "poll_budget", kPollBudget, "--poll-budget", "\"50us\"",
     "how long its threads look for work before they sleep, while an answer is owed to them up to "
     "20 times as long, or 1 ms: longer answers sooner and takes more of a processor; `0` sleeps "
     "at once, `never` has each thread take a processor to itself"},

    {"metrics", "listen", kMetrics, "--metrics", "",
     "the address at which its metrics are told by HTTP, without a key"},
    {"serve", "root", kPath, "--serve", "",
     "export the files beneath this directory by their names; with `/%SESSNAME%` at its end each "
     "client has the directory of its name, with keys that of its key's name"},
    {"serve", "listen", kAddresses, "--listen", "\":1234\"",
     "addresses to listen on; given, and beyond loopback, they take other hosts and users by TCP"},
    {"serve", "keys", kKeyFile, "--keys", "",
     "file of the keys of clients that are let in; without it whoever reaches the address is"},
    {"serve", "read_only", kTruth, "--read-only", "false", "refuse to open anything for writing"},
    {"serve", "block_devices", kTruth, "--block-devices", "false",
     "also export block devices that lie beneath the root"},
    {"serve", "huge_pages", kTruth, "--huge-pages", "false",
     "take all memory that is exported at the start, in pages of 2 MiB: random reads and writes "
     "are faster, and no discard gives any back"},
    {"serve", "reactors", kCount, "--reactors", "1",
     "threads that serve; the connections of clients are spread over them", "", 1, kReactorsMax},
    {"serve", "queue_depth", kCount, "--queue-depth", "128",
     "requests in flight of each client's session", "", 2, 4096},
    {"serve", "max_io", kSize, "--max-io", "\"1M\"",
     "largest request; bigger ones are split by the client", "", 4096, 16 * kMebibyte},
    {"serve", "chunk_guard", kWord, "--chunk-guard", "\"open\"",
     "what keeps a client from data that it has sent: nothing, memory windows, or copies",
     "open, windows, copy"},

    {"export", "name", kText, "", "", "what clients call it; needed"},
    {"export", "memory", kSize, "--memory", "",
     "it is memory of this size, lost when the daemon ends", "", 4096, bnbd::kMemoryDeviceBytesMax},
    {"export", "null", kSize, "--null", "",
     "it is a disk of this size that forgets writes and reads zeroes", "", 4096, 0},

    {"map", "target", kTarget, "", "",
     "which: `HOST[:PORT]/EXPORT`; by several paths: `[SOURCE@]HOST[:PORT],.../EXPORT`; needed"},
    {"map", "name", kDeviceName, "", "the export's last word", "what it is called here"},
    {"map", "front_end", kWord, "", "\"auto\"", "how the kernel gets it", "auto, nbd, fuse"},
    {"map", "access", kWord, "", "\"rw\"",
     "one writer at a time; `migration`: a second one beside the first", "ro, rw, migration"},
    {"map", "give_up_after", kDuration, "", "\"never\"",
     "let I/O fail when the server is away for so long"},
    {"map", "lost_after", kDuration, "", "\"never\"",
     "stop connecting to a server that is away for so long: the device is lost then"},
    {"map", "key", kKeyFile, "", "that of [node]",
     "file with this client's key, which the server has to prove to have, too"},
    {"map", "reactors", kCount, "", "[node] map_reactors", "threads that carry its requests", "", 1,
     kReactorsMax},
    {"map", "guard_reads", kTruth, "", "false",
     "reads land in memory of their own and are copied: for a server that is not trusted with "
     "the memory of what reads from it"},
    {"map", "filters", kFilters, "", "none",
     "what its requests go through, as `braid map --filter` takes it"},
};

size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({replaced, cost[i - 1][j] + 1, cost[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::span<const ConfigGroup> config_groups() {
  return kGroups;
}

std::span<const ConfigKey> config_keys() {
  return kKeys;
}

const ConfigGroup* find_group(std::string_view name) {
  for (const ConfigGroup& group : kGroups)
    if (group.name == name) return &group;
  return nullptr;
}

const ConfigKey* find_key(std::string_view group, std::string_view name) {
  for (const ConfigKey& key : kKeys)
    if (key.group == group && key.name == name) return &key;
  return nullptr;
}

std::string group_text(const ConfigGroup& group) {
  return fmt::format(fmt::runtime(group.list ? "[[{}]]" : "[{}]"), group.name);
}

std::string key_text(const ConfigKey& key) {
  return group_text(*find_group(key.group)) + " " + key.name;
}

std::string_view nearest(std::string_view typed, std::span<const std::string_view> words) {
  constexpr size_t kTypedMax = 64;  // no key is so long
  if (typed.empty() || typed.size() > kTypedMax) return {};
  std::string_view best;
  size_t least = std::max<size_t>(1, typed.size() / 3) + 1;
  for (const std::string_view word : words) {
    const size_t changes = distance(typed, word);
    if (changes < least) {
      least = changes;
      best = word;
    }
  }
  return best;
}

std::string keys_reference() {
  std::string text;
  for (const ConfigGroup& group : kGroups) {
    text += fmt::format("{}## {}: {}\n", text.empty() ? "" : "\n", group_text(group), group.what);
    text += "| key | wants | without it | what it is | braidd |\n|---|---|---|---|---|\n";
    for (const ConfigKey& key : kKeys) {
      if (group.name != std::string_view(key.group)) continue;
      const std::string_view fallback = key.fallback;
      const bool quoted = fallback.starts_with('"') || fallback == "false" ||
                          (!fallback.empty() && fallback[0] >= '0' && fallback[0] <= '9');
      text += fmt::format("| `{}` | {} | {}{}{} | {} | {}{}{} |\n", key.name, wanted_by(key),
                          quoted ? "`" : "", fallback, quoted ? "`" : "", key.what,
                          *key.option != 0 ? "`" : "", key.option, *key.option != 0 ? "`" : "");
    }
  }
  return text;
}

std::string keys_json() {
  using nlohmann::json;
  const auto text_or_null = [](const char* text) { return *text == 0 ? json() : json(text); };
  json groups = json::array();
  for (const ConfigGroup& group : kGroups) {
    json keys = json::array();
    for (const ConfigKey& key : kKeys) {
      if (group.name != std::string_view(key.group)) continue;
      keys.push_back({{"name", key.name},
                      {"wants", wanted_by(key)},
                      {"default", text_or_null(key.fallback)},
                      {"what", key.what},
                      {"option", text_or_null(key.option)}});
    }
    groups.push_back(
        {{"name", group.name}, {"list", group.list}, {"what", group.what}, {"keys", keys}});
  }
  return json{{"groups", groups}}.dump(2);
}

}  // namespace braid::cli
