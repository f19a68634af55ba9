#include "base/sim/zeroed_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace braid::base::sim {
namespace {

bool all(std::span<const std::byte> bytes, int value) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

TEST(ZeroedBytes, AreZeroAndKeepWhatIsWritten) {
  ZeroedBytes bytes(5000);
  EXPECT_EQ(bytes.size(), 5000u);
  EXPECT_TRUE(all(bytes, 0));
  std::memset(bytes.data(), 7, bytes.size());
  EXPECT_TRUE(all(bytes, 7));
}

TEST(ZeroedBytes, WhatTheyGrowByIsZeroAlsoWhereTheyWereCut) {
  ZeroedBytes bytes(3000);
  std::memset(bytes.data(), 7, bytes.size());
  bytes.resize(1000);
  bytes.resize(4000);
  const std::span<const std::byte> now = bytes;
  EXPECT_TRUE(all(now.first(1000), 7));
  EXPECT_TRUE(all(now.subspan(1000), 0));
}

TEST(ZeroedBytes, ACopyIsItsOwnAndAsLong) {
  ZeroedBytes bytes(100), copy(5), none;
  EXPECT_TRUE(none.empty());
  std::memset(bytes.data(), 7, bytes.size());
  copy = bytes;
  const ZeroedBytes second = bytes;
  std::memset(bytes.data(), 9, bytes.size());
  EXPECT_EQ(copy.size(), 100u);
  EXPECT_TRUE(all(copy, 7));
  EXPECT_TRUE(all(second, 7));
  copy = none;
  EXPECT_TRUE(copy.empty());
}

}  // namespace
}  // namespace braid::base::sim
