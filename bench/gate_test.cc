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
          .rounds_good = 5,
          .cache_line_ns = Summary{60, 60, 60}};
}

GateVerdict held(const Row& row, double recorded) {
  return hold_against({{row.name, {recorded, 60}}}, {row}).front();
}

bool fails(const Row& row, double recorded) {
  return held(row, recorded).failed;
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
  EXPECT_EQ(held(busy, 0.6).words, "inconclusive: 2 good rounds");
}

TEST(Gate, FailsWhatIsNotRecordedOrCannotBeMeasured) {
  EXPECT_TRUE(hold_against({{"writes", {1, 60}}}, {row_of("reads", 0.5)}).front().failed);
  Row broken = row_of("reads", 0.5);
  broken.verdict = Verdict::kFailed;
  broken.note = "no server";
  EXPECT_TRUE(fails(broken, 0.6));
  EXPECT_EQ(held(broken, 0.6).words, "could not be measured: no server");
}

TEST(Gate, FailsWhatIsRecordedAndNotRunAnyMore) {
  const auto verdicts =
      hold_against({{"reads", {0.6, 60}}, {"gone", {1, 60}}}, {row_of("reads", 0.6)});
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_FALSE(verdicts[0].failed);
  EXPECT_EQ(verdicts[1].row, "gone");
  EXPECT_TRUE(verdicts[1].failed);
}

TEST(Gate, HasNoVerdictOfOtherMachines) {
  const GateVerdict unknown = hold_against({}, {row_of("reads", 0.1)}).front();
  EXPECT_FALSE(unknown.failed);
  EXPECT_EQ(unknown.words, "no verdict: nothing is recorded of this kind of processor");
  Row farther = row_of("reads", 0.1);
  farther.cache_line_ns = Summary{100, 100, 100};
  EXPECT_FALSE(fails(farther, 0.6));
  EXPECT_EQ(held(farther, 0.6).words, "no verdict: a cache line takes 100 ns, 60 when recorded");
  farther.cache_line_ns = Summary{80, 80, 80};
  EXPECT_TRUE(fails(farther, 0.6));
}

TEST(Gate, ReadsWhatItRecords) {
  const auto record = record_of({row_of("reads", 0.61234), row_of("writes", 2)});
  ASSERT_TRUE(record.ok()) << record.error().message();
  const json document = {
      {"machines", {{"this", record.value()}, {"other", {{"rows", json::object()}}}}}};
  const auto recorded = recorded_from_json(document, "this");
  ASSERT_TRUE(recorded.ok()) << recorded.error().message();
  EXPECT_EQ(recorded.value(), (Recorded{{"reads", {0.612, 60}}, {"writes", {2, 60}}}));
  EXPECT_TRUE(recorded_from_json(document, "other")->empty());
  EXPECT_TRUE(recorded_from_json(document, "a third")->empty());
}

TEST(Gate, RecordsNoFigureOfABusyMachine) {
  Row busy = row_of("reads", 0.5);
  busy.verdict = Verdict::kInconclusive;
  const auto document = record_of({busy});
  ASSERT_FALSE(document.ok());
  EXPECT_NE(document.error().message().find("\"reads\" was not judged"), std::string::npos);
}

TEST(Gate, NamesWhatIsWrongInAFile) {
  const auto of_rows = [](const json& rows) {
    return json{{"machines", {{"a cpu", {{"rows", rows}}}}}};
  };
  for (const json& document :
       {json(nullptr), json{{"machines", 3}}, json{{"machines", {{"a cpu", 3}}}}, of_rows(3),
        of_rows({{"reads", 0.5}}), of_rows({{"reads", {{"ratio", 0}, {"cache_line_ns", 1}}}}),
        of_rows({{"reads", {{"ratio", 1}}}})}) {
    EXPECT_EQ(recorded_from_json(document, "a cpu").code(), base::Errc::kInvalid) << document;
  }
}

}  // namespace
}  // namespace braid::bench
