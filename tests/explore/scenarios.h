// What the explorer runs: the rings and tables of the in-host wire between two processes, as their
// owners use them.
#pragma once

#include <string>
#include <vector>

#include "tests/explore/explorer.h"

namespace braid::explore {

struct NamedScenario {
  std::string name;
  Scenario run;
  Setting setting;
};

std::vector<NamedScenario> message_scenarios();
std::vector<NamedScenario> table_scenarios();
std::vector<NamedScenario> atomic_scenarios();
std::vector<NamedScenario> scenarios();  // all of them

}  // namespace braid::explore
