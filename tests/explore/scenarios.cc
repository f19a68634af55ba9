#include "tests/explore/scenarios.h"

namespace braid::explore {

std::vector<NamedScenario> scenarios() {
  std::vector<NamedScenario> all = message_scenarios();
  for (auto& more : {table_scenarios, atomic_scenarios}) {
    for (NamedScenario& scenario : more()) all.push_back(std::move(scenario));
  }
  return all;
}

}  // namespace braid::explore
