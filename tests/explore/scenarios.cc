#include "tests/explore/scenarios.h"

namespace braid::explore {

std::vector<NamedScenario> scenarios() {
  std::vector<NamedScenario> all = message_scenarios();
  for (NamedScenario& scenario : table_scenarios()) all.push_back(std::move(scenario));
  return all;
}

}  // namespace braid::explore
