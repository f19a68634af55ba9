#include "cli/verbs/program.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "cli/braidd_parts.h"

namespace braid::cli {
namespace {

TEST(Program, may_open_as_many_descriptors_as_its_hard_limit_allows) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  char name[] = "braid";
  char* arguments[] = {name, nullptr};

  const auto has_all = [](Context&, int, char**) {
    rlimit now;
    ::getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur == now.rlim_max ? 0 : 1;
  };
  const int all = run_program(1, arguments, has_all, parts_in_this_process());

  EXPECT_EQ(all, 0);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace braid::cli
