#include "bench/row.h"

#include <gtest/gtest.h>

namespace braid::bench {
namespace {

using nlohmann::json;

Row judged_row() {
  return {
      .name = "read",
      .unit = "IOPS",
      .better = Better::kHigher,
      .ours = {.name = "braid",
               .threads = "both spin",
               .value = Summary{500000, 400000, 600000, 5},
               .p99 = Summary{1700, 1600, 1800, 5},
               .cpu = Summary{3400, 3300, 3500, 5}},
      .peer = {.name = "nbdkit", .threads = "both sleep", .value = Summary{25000, 20000, 30000, 5}},
      .ratio = 20,
      .target = 12,
      .met = true,
      .verdict = Verdict::kJudged,
      .rounds_good = 5};
}

json document_of(const Row& row) {
  return {{"suite", "block"},
          {"machine",
           {{"kernel", "6.1"}, {"cpus", 2}, {"load_1m_before", 0.0}, {"load_1m_after", 0.1}}},
          {"rows", json::array({to_json(row)})}};
}

TEST(RowJson, HasTheFieldsOfTheSuiteFile) {
  const json found = to_json(judged_row());
  EXPECT_EQ(found["name"], "read");
  EXPECT_EQ(found["unit"], "IOPS");
  EXPECT_EQ(found["ours"], 500000);
  EXPECT_EQ(found["peer"], 25000);
  EXPECT_TRUE(found["floor"].is_null());
  EXPECT_EQ(found["ratio"], 20);
  EXPECT_EQ(found["target"], 12);
  EXPECT_EQ(found["met"], true);
  EXPECT_EQ(found["sides"]["peer"]["value"]["max"], 30000);
  EXPECT_EQ(found["sides"]["peer"]["threads"], "both sleep");
  EXPECT_EQ(found["sides"]["ours"]["p99_ns"]["max"], 1800);
  EXPECT_EQ(found["sides"]["ours"]["cpu_ns_per_operation"]["min"], 3300);
}

TEST(CheckDocument, TakesWhatToJsonGives) {
  const auto status = check_document(document_of(judged_row()));
  EXPECT_TRUE(status.ok()) << status.error().message();
}

TEST(CheckDocument, NamesTheFieldThatIsWrong) {
  for (const char* field : {"name", "unit", "ours", "peer", "floor", "ratio", "target", "met"}) {
    json document = document_of(judged_row());
    document["rows"][0].erase(field);
    const auto status = check_document(document);
    ASSERT_FALSE(status.ok()) << field;
    EXPECT_NE(status.error().message().find(field), std::string::npos) << status.error().message();
  }
}

TEST(CheckDocument, WantsTheMachine) {
  json document = document_of(judged_row());
  document["machine"].erase("kernel");
  EXPECT_FALSE(check_document(document).ok());
}

TEST(CheckDocument, RefusesAVerdictWithoutEnoughRounds) {
  Row row = judged_row();
  row.verdict = Verdict::kInconclusive;
  EXPECT_FALSE(check_document(document_of(row)).ok());
  row.met.reset();
  EXPECT_TRUE(check_document(document_of(row)).ok());
}

TEST(Table, ShowsRatioTargetAndVerdict) {
  const std::string text = table({judged_row()});
  EXPECT_NE(text.find(">= 12"), std::string::npos) << text;
  EXPECT_NE(text.find("yes"), std::string::npos) << text;
  EXPECT_NE(text.find("min 400 k, median 500 k, max 600 k"), std::string::npos) << text;
  EXPECT_NE(text.find("both sleep"), std::string::npos) << text;
  EXPECT_NE(text.find("CPU of both 3400 ns"), std::string::npos) << text;
  Row row = judged_row();
  row.verdict = Verdict::kInconclusive;
  row.met.reset();
  EXPECT_NE(table({row}).find("inconclusive"), std::string::npos);
}

}  // namespace
}  // namespace braid::bench
