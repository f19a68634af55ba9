// braid-explore [--expect-violation] [--plant=BUG] [NAME]: runs the scenarios whose name holds
// NAME.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <string>

#include "tests/explore/scenarios.h"

int main(int argc, char** argv) {
  using namespace braid::explore;
  bool expect = false;
  std::string filter, planted;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--expect-violation") == 0) {
      expect = true;
    } else if (std::strncmp(argv[i], "--plant=", 8) == 0) {
      planted = argv[i] + 8;
    } else {
      filter = argv[i];
    }
  }
  bool violated = false;
  unsigned ran = 0;
  std::vector<NamedScenario> all = scenarios();
  for (NamedScenario& scenario : all) {
    scenario.setting.planted = planted;
    if (scenario.name.find(filter) == std::string::npos) continue;
    ++ran;
    const auto began = std::chrono::steady_clock::now();
    const Finding finding = explore(scenario.run, scenario.setting);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    fmt::print("{}: {} runs, {:.2f} s\n", scenario.name, finding.runs, took.count());
    if (finding.violation.empty()) continue;
    violated = true;
    fmt::print("  VIOLATION: {}\n  found by {}, in run {}; its steps are above\n",
               finding.violation, finding.how, finding.runs);
    if (expect) break;
  }
  if (ran == 0) fmt::print("no scenario has '{}' in its name\n", filter);
  return violated == expect && ran != 0 ? 0 : 1;
}
