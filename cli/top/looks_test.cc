// Nodes that come, go and are silent while somebody looks.
#include "cli/top/looks.h"

#include <gmock/gmock.h>

#include "cli/metrics/test_sample.h"

namespace braid::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

NodeSample at(const std::string& node, uint64_t seconds, uint64_t reads) {
  NodeSample sample = full_sample(node);
  sample.at_ns = seconds * 1'000'000'000;
  sample.devices[0].io.reads = reads;
  sample.sessions.clear();
  sample.exports.clear();
  return sample;
}

TEST(Looks, compare_with_the_one_before) {
  Looks looks;
  EXPECT_FALSE(looks.take({at("a", 1, 100)}, {}, TopOrder::kBytes).rows[0].rates);
  const TopView second = looks.take({at("a", 2, 150)}, {}, TopOrder::kBytes);
  ASSERT_TRUE(second.rows[0].rates);
  EXPECT_EQ(second.rows[0].rates->reads, 50);
  EXPECT_THAT(second.silent, IsEmpty());
}

TEST(Looks, compare_a_node_that_was_silent_with_its_last_answer) {
  Looks looks;
  looks.take({at("a", 1, 100)}, {}, TopOrder::kBytes);
  const TopView silent = looks.take({}, {"node \"a\": no answer"}, TopOrder::kBytes);
  EXPECT_THAT(silent.rows, IsEmpty());
  EXPECT_THAT(silent.silent, testing::ElementsAre("node \"a\": no answer"));
  const TopView again = looks.take({at("a", 5, 180)}, {}, TopOrder::kBytes);
  ASSERT_TRUE(again.rows[0].rates);
  EXPECT_EQ(again.rows[0].rates->reads, 20);
}

TEST(Looks, say_for_a_while_that_a_node_has_ended) {
  Looks looks;
  looks.take({at("a", 1, 100), at("b", 1, 1)}, {}, TopOrder::kBytes);
  for (unsigned i = 0; i < Looks::kMourned; ++i)
    EXPECT_THAT(looks.take({at("b", 2 + i, 1)}, {}, TopOrder::kBytes).silent,
                Contains(HasSubstr("node \"a\" has ended")))
        << i;
  EXPECT_THAT(looks.take({at("b", 90, 1)}, {}, TopOrder::kBytes).silent, IsEmpty());
}

TEST(Looks, begin_anew_with_a_node_that_came_back) {
  Looks looks;
  looks.take({at("a", 1, 100)}, {}, TopOrder::kBytes);
  looks.take({}, {}, TopOrder::kBytes);
  const TopView back = looks.take({at("a", 3, 500)}, {}, TopOrder::kBytes);
  EXPECT_FALSE(back.rows[0].rates);
  EXPECT_THAT(back.silent, IsEmpty());
}

}  // namespace
}  // namespace braid::cli
