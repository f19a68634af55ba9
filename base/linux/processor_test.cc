#include <gtest/gtest.h>
#include <sched.h>

#include "base/linux_processor.h"

namespace braid::base {
namespace {

TEST(LinuxProcessor, is_the_one_to_which_the_thread_is_bound) {
  cpu_set_t may;
  ASSERT_EQ(sched_getaffinity(0, sizeof(may), &may), 0);
  for (unsigned processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &may)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(linux_processor(), processor);
  }
  EXPECT_EQ(sched_setaffinity(0, sizeof(may), &may), 0);
}

}  // namespace
}  // namespace braid::base
