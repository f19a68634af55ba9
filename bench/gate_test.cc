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

using Kind = GateVerdict::Kind;

bool fails(const Row& row, double recorded) {
  return held(row, recorded).kind == Kind::kFailed;
}

constexpr Passes kLong{.run_ms = 2000, .store_bytes = 1 << 30};
constexpr Passes kBrief{.run_ms = 300, .store_bytes = 256 << 20};

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
  EXPECT_EQ(held(busy, 0.6).kind, Kind::kNone);
  EXPECT_EQ(held(busy, 0.6).words, "inconclusive: 2 good rounds");
}

TEST(Gate, FailsWhatIsNotRecordedOrCannotBeMeasured) {
  EXPECT_EQ(hold_against({{"writes", {1, 60}}}, {row_of("reads", 0.5)}).front().kind,
            Kind::kFailed);
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
  EXPECT_EQ(verdicts[0].kind, Kind::kWell);
  EXPECT_EQ(verdicts[1].row, "gone");
  EXPECT_EQ(verdicts[1].kind, Kind::kFailed);
}

TEST(Gate, HasNoVerdictOfOtherMachines) {
  const GateVerdict unknown = hold_against({}, {row_of("reads", 0.1)}).front();
  EXPECT_EQ(unknown.kind, Kind::kNone);
  EXPECT_EQ(unknown.words, "nothing is recorded of this kind of processor");
  Row farther = row_of("reads", 0.1);
  farther.cache_line_ns = Summary{100, 100, 100};
  EXPECT_EQ(held(farther, 0.6).kind, Kind::kNone);
  EXPECT_EQ(held(farther, 0.6).words, "a cache line takes 100 ns, 60 when recorded");
  farther.cache_line_ns = Summary{80, 80, 80};
  EXPECT_TRUE(fails(farther, 0.6));
}

TEST(Gate, ReadsWhatItRecords) {
  const auto record = record_of({row_of("reads", 0.61234), row_of("writes", 2)}, kLong);
  ASSERT_TRUE(record.ok()) << record.error().message();
  json other = record.value();
  other["rows"] = json::object();
  const json document = {{"machines", {{"this", record.value()}, {"other", other}}}};
  const auto recorded = recorded_from_json(document, "this", kLong);
  ASSERT_TRUE(recorded.ok()) << recorded.error().message();
  EXPECT_EQ(recorded.value(), (Recorded{{"reads", {0.612, 60}}, {"writes", {2, 60}}}));
  EXPECT_TRUE(recorded_from_json(document, "other", kLong)->empty());
  EXPECT_TRUE(recorded_from_json(document, "a third", kBrief)->empty());
}

TEST(Gate, HoldsNoBriefPassesAgainstLongOnes) {
  const auto record = record_of({row_of("reads", 0.6)}, kLong);
  ASSERT_TRUE(record.ok());
  const auto recorded =
      recorded_from_json(json{{"machines", {{"this", record.value()}}}}, "this", kBrief);
  ASSERT_FALSE(recorded.ok());
  EXPECT_EQ(recorded.error().message(),
            "recorded figures: \"this\": by passes of 2000 ms on 1024 MiB, and these are of 300 ms "
            "on 256 MiB: --record anew, or without --brief");
}

TEST(Gate, RecordsNoFigureOfABusyMachine) {
  Row busy = row_of("reads", 0.5);
  busy.verdict = Verdict::kInconclusive;
  const auto document = record_of({busy}, kLong);
  ASSERT_FALSE(document.ok());
  EXPECT_NE(document.error().message().find("\"reads\" was not judged"), std::string::npos);
}

TEST(Gate, NamesWhatIsWrongInAFile) {
  const auto of_rows = [](const json& rows) {
    return json{{"machines", {{"a cpu", {{"run_ms", 1}, {"store_bytes", 1}, {"rows", rows}}}}}};
  };
  json without_passes = of_rows(json::object());
  without_passes["machines"]["a cpu"].erase("run_ms");
  for (const json& document :
       {json(nullptr), json{{"machines", 3}}, json{{"machines", {{"a cpu", 3}}}}, of_rows(3),
        of_rows({{"reads", 0.5}}), of_rows({{"reads", {{"ratio", 0}, {"cache_line_ns", 1}}}}),
        of_rows({{"reads", {{"ratio", 1}}}}), without_passes}) {
    EXPECT_EQ(check_recorded(document).code(), base::Errc::kInvalid) << document;
  }
  EXPECT_TRUE(check_recorded(of_rows(json::object())).ok());
}

}  // namespace
}  // namespace braid::bench
