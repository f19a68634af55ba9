// Every pair of states against the tables of the reference (docs/trs.md).
#include "trs/path_state.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <utility>

namespace braid::trs {
namespace {

using C = ClientPathState;
using S = ServerPathState;

base::Logger quiet() {
  return {base::make_null_sink(), "test", base::LogLevel::kOff};
}

template <typename State>
void expect_exactly(const std::set<std::pair<State, State>>& allowed, State last) {
  for (int from = 0; from <= static_cast<int>(last); ++from) {
    for (int to = 0; to <= static_cast<int>(last); ++to) {
      const auto pair = std::pair(static_cast<State>(from), static_cast<State>(to));
      EXPECT_EQ(may_move(pair.first, pair.second), allowed.contains(pair))
          << to_string(pair.first) << " -> " << to_string(pair.second);
    }
  }
}

TEST(PathState, ClientMovesAreThoseOfTheTable) {
  expect_exactly<C>({{C::kConnecting, C::kConnected},
                     {C::kConnecting, C::kConnectingErr},
                     {C::kConnecting, C::kClosing},
                     {C::kConnected, C::kReconnecting},
                     {C::kConnected, C::kClosing},
                     {C::kConnectingErr, C::kReconnecting},
                     {C::kConnectingErr, C::kClosing},
                     {C::kReconnecting, C::kConnecting},
                     {C::kReconnecting, C::kClosing},
                     {C::kClosing, C::kClosed},
                     {C::kClosed, C::kReconnecting},
                     {C::kClosed, C::kDead}},
                    C::kDead);
}

TEST(PathState, ServerMovesAreThoseOfTheTable) {
  expect_exactly<S>({{S::kConnecting, S::kConnected},
                     {S::kConnecting, S::kClosing},
                     {S::kConnected, S::kClosing},
                     {S::kClosing, S::kClosed}},
                    S::kClosed);
}

template <typename Moves>
void add_rows(std::set<std::string>& rows, const char* side, const Moves& moves) {
  for (const auto& move : moves) {
    rows.insert(fmt::format("| {} | {} | {} | {} |", side, to_string(move.from), to_string(move.to),
                            move.cause));
  }
}

/// From the root of the tree, where the test runner starts tests.
TEST(PathState, DocumentShowsTheTables) {
  std::set<std::string> expected;
  add_rows(expected, "client", kClientPathMoves);
  add_rows(expected, "server", kServerPathMoves);
  std::ifstream document("docs/trs.md");
  if (!document) GTEST_SKIP() << "docs/trs.md is not here: run from the root of the tree";
  std::set<std::string> shown;
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("| client | ") || line.starts_with("| server | ")) shown.insert(line);
  }
  EXPECT_EQ(shown, expected);
}

TEST(PathState, MachineFollowsTheTable) {
  StateMachine<S> machine(S::kConnecting, quiet());
  machine.set(S::kConnected, "test");
  EXPECT_TRUE(machine.is(S::kConnected));
}

TEST(PathStateDeathTest, MoveOutsideTheTableIsABug) {
  StateMachine<S> machine(S::kClosed, quiet());
  EXPECT_DEATH(machine.set(S::kConnected, "test"), "");
}

}  // namespace
}  // namespace braid::trs
