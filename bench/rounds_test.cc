#include "bench/rounds.h"

#include <gtest/gtest.h>

#include <deque>

namespace braid::bench {
namespace {

// Gives the values it was told, then fails.
class Scripted : public Candidate {
 public:
  Scripted(std::string name, std::deque<double> values, std::string& order)
      : name_(std::move(name)), values_(std::move(values)), order_(order) {}
  std::string name() const override { return name_; }
  std::string threads() const override { return "one"; }
  base::Status prepare(Bench&) override {
    if (absent) return base::make_error(base::Errc::kNotFound, "{}: not installed", name_);
    return base::ok_status();
  }
  base::Result<Sample> run(Bench&) override {
    order_ += name_;
    if (values_.empty()) return base::make_error(base::Errc::kIo, "no more values");
    const double value = values_.front();
    values_.pop_front();
    return Sample{.value = value};
  }
  bool absent = false;

 private:
  std::string name_;
  std::deque<double> values_;
  std::string& order_;
};

Round round_of(double ours, double peer, bool quiet) {
  return {.quiet = quiet,
          .cache_line_ns = 110,
          .ours = Sample{.value = ours},
          .peer = Sample{.value = peer}};
}

const Options kAsAlways;

RowPlan plan_with_target(double target) {
  return {.name = "row", .unit = "IOPS", .better = Better::kHigher, .target = target};
}

TEST(Judge, ComparesMediansOfQuietRoundsOnly) {
  std::vector<Round> rounds{round_of(1, 1000, false)};
  for (int i = 0; i < 5; ++i) rounds.push_back(round_of(100 + i, 10, true));
  const Row row = judge(plan_with_target(10), rounds, kAsAlways);
  EXPECT_EQ(row.verdict, Verdict::kJudged);
  EXPECT_EQ(row.ours.value->median, 102);
  EXPECT_EQ(row.ours.value->min, 100);
  EXPECT_DOUBLE_EQ(*row.ratio, 10.2);
  EXPECT_EQ(row.met, true);
  EXPECT_EQ(row.rounds_good, 5u);
  EXPECT_EQ(row.rounds_dropped, 1u);
}

TEST(Judge, JudgesNothingBehindAWiderGate) {
  const std::vector<Round> rounds(5, round_of(100, 10, true));
  Options options;
  EXPECT_EQ(judge(plan_with_target(10), rounds, options).met, true);
  options.judged = false;
  const Row row = judge(plan_with_target(10), rounds, options);
  EXPECT_EQ(row.verdict, Verdict::kUnjudged);
  EXPECT_FALSE(row.met);
  EXPECT_DOUBLE_EQ(*row.ratio, 10);
}

TEST(Judge, MissesATargetThatIsNotReached) {
  const std::vector<Round> rounds(5, round_of(90, 10, true));
  EXPECT_EQ(judge(plan_with_target(10), rounds, kAsAlways).met, false);
}

TEST(Judge, HoldsTheMedianLatencyAgainstTheFloorsToo) {
  Round round = round_of(100, 10, true);
  round.ours->latencies = Latencies{.p50_ns = 2400};
  round.floor = Sample{.value = 1000, .latencies = Latencies{.p50_ns = 1000}};
  RowPlan plan = plan_with_target(10);
  plan.p50_floor_target = 2.5;
  EXPECT_EQ(judge(plan, std::vector(5, round), kAsAlways).met, true);
  round.ours->latencies->p50_ns = 2600;
  const Row slow = judge(plan, std::vector(5, round), kAsAlways);
  EXPECT_EQ(slow.met, false);
  EXPECT_DOUBLE_EQ(*slow.p50_floor_ratio, 2.6);
  round.floor.reset();
  EXPECT_FALSE(judge(plan, std::vector(5, round), kAsAlways).met);
}

TEST(Judge, HoldsAValueAgainstItsOwnTarget) {
  const RowPlan plan{.name = "idle", .unit = "%", .better = Better::kLower, .value_target = 0.5};
  const auto round = [](double ours) {
    return Round{.quiet = true, .cache_line_ns = 110, .ours = Sample{.value = ours}};
  };
  EXPECT_EQ(judge(plan, std::vector(5, round(0.4)), kAsAlways).met, true);
  EXPECT_EQ(judge(plan, std::vector(5, round(0.6)), kAsAlways).met, false);
}

TEST(Judge, HoldsABoundAgainstTheWorstRound) {
  RowPlan plan{.name = "longest", .unit = "ms", .better = Better::kLower, .value_target = 10};
  std::vector<Round> rounds;
  for (const double ours : {6.0, 6.0, 6.0, 6.0, 11.0}) {
    rounds.push_back({.quiet = true, .cache_line_ns = 110, .ours = Sample{.value = ours}});
  }
  EXPECT_EQ(judge(plan, rounds, kAsAlways).met, true);
  plan.each_round = true;
  EXPECT_EQ(judge(plan, rounds, kAsAlways).met, false);
  rounds.back().ours->value = 9.9;
  EXPECT_EQ(judge(plan, rounds, kAsAlways).met, true);
}

TEST(Judge, FourGoodRoundsAreInconclusive) {
  const std::vector<Round> rounds(4, round_of(100, 10, true));
  const Row row = judge(plan_with_target(10), rounds, kAsAlways);
  EXPECT_EQ(row.verdict, Verdict::kInconclusive);
  EXPECT_FALSE(row.met);
  EXPECT_EQ(row.ratio, 10);
}

TEST(Judge, ShowsFiguresOfABusyMachineWithoutAVerdict) {
  const std::vector<Round> rounds(15, round_of(100, 10, false));
  const Row row = judge(plan_with_target(10), rounds, kAsAlways);
  EXPECT_EQ(row.verdict, Verdict::kInconclusive);
  EXPECT_EQ(row.ours.value->count, 15u);
  EXPECT_EQ(row.rounds_good, 0u);
}

TEST(Judge, WithoutAPeerThereIsNoRatioAndNoVerdictOnTheTarget) {
  std::vector<Round> rounds(5, round_of(100, 10, true));
  for (Round& round : rounds) round.peer.reset();
  const Row row = judge(plan_with_target(10), rounds, kAsAlways);
  EXPECT_EQ(row.verdict, Verdict::kJudged);
  EXPECT_FALSE(row.ratio);
  EXPECT_FALSE(row.met);
}

class MeasureTest : public testing::Test {
 protected:
  static constexpr Observation kQuiet{.idle = true, .cache_line_ns = 110};
  static constexpr Observation kBusy{.idle = false};
  static constexpr Observation kSlowLine{.idle = true, .cache_line_ns = 200};

  /// Looks at the machine give `looks` in turn, and then the last of them again and again.
  Bench bench(unsigned rounds, std::deque<Observation> looks, double minutes = 60) {
    return {interrupts_,
            scratch_,
            choose_cpus(),
            {.rounds = rounds, .minutes = minutes},
            [](const std::string&) {},
            [looks]() mutable -> base::Result<Observation> {
              const Observation seen = looks.front();
              if (looks.size() > 1) looks.pop_front();
              return seen;
            }};
  }
  RowPlan plan(std::deque<double> ours, std::deque<double> peer) {
    RowPlan plan = plan_with_target(2);
    plan.ours = std::make_unique<Scripted>("A", std::move(ours), order_);
    plan.peer = std::make_unique<Scripted>("B", std::move(peer), order_);
    return plan;
  }
  Interrupts interrupts_;
  ScratchFolder scratch_;
  std::string order_;
};

TEST_F(MeasureTest, TakesTheSidesInTurn) {
  Bench quiet = bench(5, {kQuiet});
  RowPlan row = plan({6, 6, 6, 6, 6}, {3, 3, 3, 3, 3});
  const auto found = measure(quiet, row);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(order_, "ABABABABAB");
  EXPECT_EQ(found.value().verdict, Verdict::kJudged);
  EXPECT_EQ(found.value().met, true);
}

TEST_F(MeasureTest, BeginsARoundOnlyOnAQuietMachine) {
  Bench later = bench(1, {kBusy, kSlowLine, kBusy, kQuiet});
  RowPlan row = plan({6}, {3});
  const auto found = measure(later, row);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(order_, "AB");
  EXPECT_EQ(found.value().rounds_good, 1u);
  EXPECT_EQ(found.value().rounds_dropped, 0u);
  EXPECT_EQ(found.value().cache_line_ns->max, 110);
}

TEST_F(MeasureTest, GivesARoundUpAtTheFirstBadLook) {
  Bench disturbed = bench(1, {kQuiet, kSlowLine, kBusy, kQuiet});
  RowPlan row = plan({6, 6}, {3});
  const auto found = measure(disturbed, row);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(order_, "AAB");
  EXPECT_EQ(found.value().rounds_good, 1u);
  EXPECT_EQ(found.value().rounds_dropped, 1u);
}

TEST_F(MeasureTest, WhenTheTimeIsUpOneRoundShowsTheFiguresWithoutAVerdict) {
  Bench busy = bench(5, {kBusy}, 0);
  RowPlan row = plan({6}, {3});
  const auto found = measure(busy, row);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(order_, "AB");
  EXPECT_EQ(found.value().verdict, Verdict::kInconclusive);
  EXPECT_EQ(found.value().ratio, 2);
  EXPECT_EQ(found.value().rounds_dropped, 1u);
}

TEST_F(MeasureTest, AFailingSideFailsTheRowAndIsNamed) {
  Bench quiet = bench(5, {kQuiet});
  RowPlan row = plan({6}, {});
  const auto found = measure(quiet, row);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value().verdict, Verdict::kFailed);
  EXPECT_EQ(found.value().note, "B: no more values");
}

TEST_F(MeasureTest, GoesOnWithoutAPeerThatIsNotInstalled) {
  Bench quiet = bench(5, {kQuiet});
  RowPlan row = plan(std::deque<double>(5, 6), {});
  static_cast<Scripted&>(*row.peer).absent = true;
  const auto found = measure(quiet, row);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value().verdict, Verdict::kJudged);
  EXPECT_FALSE(found.value().ratio);
  EXPECT_NE(found.value().note.find("no peer: B"), std::string::npos);
}

TEST_F(MeasureTest, AQuickRunIsOneRoundWithoutAVerdict) {
  Bench quick = bench(5, {kBusy});
  quick.options.quick = true;
  RowPlan row = plan({6}, {3});
  const auto found = measure(quick, row);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(order_, "AB");
  EXPECT_EQ(found.value().verdict, Verdict::kQuick);
  EXPECT_FALSE(found.value().met);
  EXPECT_EQ(found.value().ratio, 2);
}

}  // namespace
}  // namespace braid::bench
