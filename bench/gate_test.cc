#include "bench/gate.h"

#include <gtest/gtest.h>

namespace braid::bench {
namespace {

using nlohmann::json;

Row row_of(std::string name, double floor_ratio, Better better = Better::kHigher) {
  return {.name = std::move(name),
          .better = better,
          .floor_ratio = floor_ratio,
          .verdict = Verdict::kJudged,
          .rounds_good = 5};
}

bool fails(const Row& row, double recorded) {
  return hold_against({{row.name, recorded}}, {row}).front().failed;
}

TEST(Gate, FailsWhatIsWorseByMoreThanItsSlackWhicheverWayIsGood) {
  EXPECT_FALSE(fails(row_of("reads", 0.50), 0.60));
  EXPECT_TRUE(fails(row_of("reads", 0.44), 0.60));
  EXPECT_FALSE(fails(row_of("reads", 0.90), 0.60));
  EXPECT_FALSE(fails(row_of("message", 3.0, Better::kLower), 2.4));
  EXPECT_TRUE(fails(row_of("message", 3.3, Better::kLower), 2.4));
  EXPECT_FALSE(fails(row_of("message", 1.0, Better::kLower), 2.4));
}

TEST(Gate, ABusyMachineFailsNothing) {
  Row busy = row_of("reads", 0.1);
  busy.verdict = Verdict::kInconclusive;
  busy.rounds_good = 2;
  EXPECT_FALSE(fails(busy, 0.6));
  EXPECT_EQ(hold_against({{"reads", 0.6}}, {busy}).front().words, "inconclusive: 2 good rounds");
}

TEST(Gate, FailsWhatIsNotRecordedOrCannotBeMeasured) {
  EXPECT_TRUE(hold_against({}, {row_of("reads", 0.5)}).front().failed);
  Row broken = row_of("reads", 0.5);
  broken.verdict = Verdict::kFailed;
  broken.note = "no server";
  EXPECT_TRUE(fails(broken, 0.6));
  EXPECT_EQ(hold_against({{"reads", 0.6}}, {broken}).front().words,
            "could not be measured: no server");
}

TEST(Gate, ReadsWhatItRecords) {
  const auto document = record_of({row_of("reads", 0.61234), row_of("writes", 2)});
  ASSERT_TRUE(document.ok()) << document.error().message();
  const auto recorded = recorded_from_json(document.value());
  ASSERT_TRUE(recorded.ok()) << recorded.error().message();
  EXPECT_EQ(recorded.value(), (Recorded{{"reads", 0.612}, {"writes", 2}}));
}

TEST(Gate, RecordsNoFigureOfABusyMachine) {
  Row busy = row_of("reads", 0.5);
  busy.verdict = Verdict::kInconclusive;
  const auto document = record_of({busy});
  ASSERT_FALSE(document.ok());
  EXPECT_NE(document.error().message().find("\"reads\" was not judged"), std::string::npos);
}

TEST(Gate, NamesWhatIsWrongInAFile) {
  for (const json& document : {json(nullptr), json{{"rows", 3}}, json{{"rows", {{"reads", "x"}}}},
                               json{{"rows", {{"reads", 0}}}}}) {
    EXPECT_EQ(recorded_from_json(document).code(), base::Errc::kInvalid) << document;
  }
}

}  // namespace
}  // namespace braid::bench
