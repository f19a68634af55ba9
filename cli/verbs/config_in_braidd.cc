// The part of `braid config` that reads and judges.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/braidd_parts.h"
#include "cli/config/config.h"

namespace braid::cli {

using nlohmann::json;

namespace {

struct Judged {
  std::string path;
  Config config;
  std::vector<Problem> problems;
};

Judged judged(const std::string& file) {
  Judged all;
  const bool named = !file.empty();
  all.path = named ? std::filesystem::absolute(file).string() : kConfigFile;
  all.config = load_config(all.path, named, all.problems);
  judge_config(all.config, all.problems);
  judge_files(all.config, all.problems);
  return all;
}

json problem_json(const Problem& problem) {
  return {{"file", problem.place.file},
          {"line", problem.place.line},
          {"column", problem.place.column},
          {"message", problem.what},
          {"kind", problem.warning ? "warning" : "error"}};
}

json problems_json(const std::vector<Problem>& problems) {
  json list = json::array();
  for (const Problem& problem : problems) list.push_back(problem_json(problem));
  return list;
}

json lines_of(const std::string& text) {
  json lines = json::array();
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

void print_problems(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems) std::cerr << problem.text() << "\n";
}

}  // namespace

void check_config(Context& context, const std::string& file) {
  const Judged all = judged(file);
  const bool ok = !any_error(all.problems);
  if (!ok) context.exit_code = kFailed;
  const std::string summary = ok ? config_summary(all.config) : "";
  if (context.json)
    return print_json({{"ok", ok},
                       {"files", all.config.files},
                       {"problems", problems_json(all.problems)},
                       {"summary", lines_of(summary)}});
  print_problems(all.problems);
  if (!ok) return;
  if (all.config.files.empty())
    std::cout << "ok: there is no " << all.path << "\n";
  else
    std::cout << "ok\n";
  std::cout << summary;
}

void show_config(Context& context, const std::string& file) {
  const Judged all = judged(file);
  if (any_error(all.problems)) {
    context.exit_code = kFailed;
    if (context.json) return print_json({{"problems", problems_json(all.problems)}});
    return print_problems(all.problems);
  }
  if (context.json)
    std::cout << config_json(all.config) << "\n";
  else
    std::cout << config_table(all.config);
}

}  // namespace braid::cli
