// Texts of braid.toml: two files, with a zero byte between them. Whatever they say, each problem
// has a place within its text, and what has none makes a node's options.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bnbd/backends.h"
#include "bnbd/kernel_device.h"
#include "bnbd/server.h"
#include "cli/config/config.h"
#include "cli/control.h"
#include "cli/map_words.h"
#include "cli/target.h"
#include "tests/fuzz/reached.h"

namespace {

using namespace braid::cli;

braid::fuzz::Verdicts tomls("TOML"), configs("configuration"), exporting("with exports"),
    mapping("with maps");

void require(bool condition) {
  if (!condition) std::abort();
}

void check_problem(const Problem& problem, const std::string& text) {
  require(!problem.what.empty() && !problem.text().empty());
  require(problem.text().find('\n') == std::string::npos);
  const auto lines = static_cast<unsigned>(std::count(text.begin(), text.end(), '\n')) + 1;
  require(problem.place.line <= lines + 1);  // behind the last one: the end is missing
}

/// What the server asks of them when it starts.
void check_exports(const ServeOptions& serve) {
  std::set<std::string> names;
  for (const auto* const exports : {&serve.memory, &serve.null}) {
    for (const SyntheticExport& one : *exports) {
      require(braid::bnbd::check_export_name(one.name).ok());
      require(names.insert(braid::bnbd::normal_export_name(one.name)).second);
      require(one.size_bytes > 0 && one.size_bytes % 4096 == 0);
    }
  }
  for (const SyntheticExport& one : serve.memory)
    require(one.size_bytes <= braid::bnbd::kMemoryDeviceBytesMax);
}

void check_map(const WantedMap& map) {
  require(braid::bnbd::check_device_name(map.name).ok() && parse_target(map.target).ok());
  const auto params = nlohmann::json::parse(map.params);
  require(params.at("target") == map.target && params.at("name") == map.name);
  auto access = parse_access(params.value("access", "rw"));
  require(access.ok());
  const auto filters = params.value("filters", std::vector<std::string>());
  require(parse_filters(filters, *access).ok());
}

void check_options(const Config& config) {
  auto options = node_options(config);
  require(options.ok());
  require(check_node_name(options->name).ok() && options->map_reactors >= 1);
  if (exporting.count(options->serve.has_value())) {
    require(options->serve->max_io_bytes % 4096 == 0 && options->serve->reactors >= 1);
    check_exports(*options->serve);
  }
  mapping.count(!options->maps.empty());
  for (const WantedMap& map : options->maps) check_map(map);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  if (size_bytes > 16384) return 0;
  const std::string all(reinterpret_cast<const char*>(data), size_bytes);
  const size_t cut = all.find('\0');
  const std::string texts[] = {all.substr(0, cut), cut == all.npos ? "" : all.substr(cut + 1)};
  tomls.count(std::holds_alternative<Value>(parse_toml(texts[0], "0")));
  Config config;
  std::vector<Problem> problems;
  read_config(texts[0], "0", config, problems);
  read_config(texts[1], "1", config, problems);
  judge_config(config, problems);
  for (const Problem& problem : problems) check_problem(problem, texts[problem.place.file == "1"]);
  require(!config_table(config).empty() && !config_json(config).empty());
  if (!configs.count(!any_error(problems))) return 0;
  require(!config_summary(config).empty());
  check_options(config);
  return 0;
}
