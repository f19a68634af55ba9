// Runs each suite once for a moment, so that it cannot rot. Says nothing about speed.
#include "bench/suite.h"

#include <gtest/gtest.h>

namespace braid::bench {
namespace {

class SuiteTest : public testing::TestWithParam<std::string> {
 protected:
  base::Result<SuiteResult> quick_run(const std::string& filter) {
    Bench bench{.interrupts = interrupts_,
                .scratch = scratch_,
                .cpus = choose_cpus(),
                .options = {.quick = true, .filter = filter},
                .progress = [](const std::string&) {}};
    return run_suite(GetParam(), bench);
  }
  Interrupts interrupts_;
  ScratchFolder scratch_;
};

TEST_P(SuiteTest, AQuickRunFillsEveryRow) {
  const auto result = quick_run("");
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
