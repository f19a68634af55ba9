// What a port can be told, and what the time-outs of connections mean to it.
#include "vhca/soft/port.h"

#include <gtest/gtest.h>

#include <string>

namespace braid::vhca::soft {
namespace {

TEST(Ports, WhatAWireCannotRepeatIsRefusedInWordsAndChangesNothing) {
  Port port(/*can_repeat=*/false);
  ASSERT_TRUE(port.set_faults({.lose_sent = true}).ok());
  const base::Status refused = port.set_faults({.duplicate = true});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), base::Errc::kNotSupported);
  EXPECT_NE(refused.error().message().find("comes twice"), std::string::npos);
  EXPECT_EQ(port.trouble(), Port::kLosesSent);
}

TEST(Ports, ATimeOutIsThatOfVerbs) {
  EXPECT_EQ(retry_ns(0, 7), 0u) << "never";
  EXPECT_EQ(retry_ns(1, 0), 8192u);
  EXPECT_EQ(retry_ns(31, 7), (4096ull << 31) * 8);
}

}  // namespace
}  // namespace braid::vhca::soft
