#include "bnbd/server/revocations.h"

#include <gtest/gtest.h>

namespace braid::bnbd::server {
namespace {

TEST(Revocations, the_oldest_is_forgotten_first) {
  Revocations revocations(3);
  for (const char* session : {"z", "b", "a"}) revocations.add("disk", session);
  revocations.add("disk", "z");  // once more: it is the newest now
  revocations.add("disk", "m");
  EXPECT_FALSE(revocations.contains("disk", "b"));
  for (const char* session : {"a", "z", "m"}) EXPECT_TRUE(revocations.contains("disk", session));
  revocations.remove("disk", "z");
  EXPECT_FALSE(revocations.contains("disk", "z"));
  revocations.add("disk", "n");
  EXPECT_TRUE(revocations.contains("disk", "a")) << "there was room";
}

}  // namespace
}  // namespace braid::bnbd::server
