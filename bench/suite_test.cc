// Runs each suite once for a moment, so that it cannot rot. Says nothing about speed.
#include "bench/suite.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace braid::bench {
namespace {

class SuiteTest : public testing::TestWithParam<std::string> {
 protected:
  base::Result<SuiteResult> quick_run(const std::string& filter,
                                      const std::set<std::string>& left_out = {}) {
    Bench bench{.interrupts = interrupts_,
                .scratch = scratch_,
                .cpus = choose_cpus(),
                .options = {.quick = true, .filter = filter, .left_out = left_out},
                .progress = [](const std::string&) {}};
    return run_suite(GetParam(), bench);
  }
  Interrupts interrupts_;
  ScratchFolder scratch_;
};

/// Rows of the same two sides differ in how much is asked for at once: "4 KiB random read, depth 1,
/// NBD, memory". All but the first and the last of them.
std::set<std::string> between(const std::vector<RowPlan>& plans) {
  std::map<std::string, std::vector<std::string>> kinds;
  for (const RowPlan& plan : plans) {
    const size_t depth = plan.name.find(", depth ");
    if (depth == std::string::npos) continue;
    const size_t sides = plan.name.find(", ", depth + 1);
    if (sides != std::string::npos) kinds[plan.name.substr(sides)].push_back(plan.name);
  }
  std::set<std::string> names;
  for (const auto& [kind, rows] : kinds) {
    if (rows.size() > 2) names.insert(rows.begin() + 1, rows.end() - 1);
  }
  return names;
}

TEST_P(SuiteTest, AQuickRunFillsTheRows) {
  auto plans = suite_named(GetParam());
  ASSERT_TRUE(plans.ok()) << plans.error().message();
  const auto result = quick_run("", between(plans.value()));
  ASSERT_TRUE(result.ok()) << result.error().message();
  EXPECT_FALSE(result.value().rows.empty());
  for (const Row& row : result.value().rows) {
    EXPECT_EQ(row.verdict, Verdict::kQuick) << row.name << ": " << row.note;
  }
  const auto status = check_document(result.value().document);
  EXPECT_TRUE(status.ok()) << status.error().message();
}

TEST_P(SuiteTest, AFilterThatLeavesNothingIsAnError) {
  EXPECT_EQ(quick_run("no row has this name").code(), base::Errc::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Suites, SuiteTest, testing::Values("block", "micro", "gate"),
                         [](const auto& suite) { return suite.param; });

TEST(SuiteNamed, NamesTheSuitesThatThereAre) {
  const auto none = suite_named("disk");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message().find("block, micro, gate"), std::string::npos);
}

}  // namespace
}  // namespace braid::bench
