// Keys resolve to what was registered, only while it is, and never twice in a row to the same
// value.
#include "vhca/soft/mr_table.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "base/test_host.h"
#include "vhca/verbs.h"

namespace braid::vhca::soft {
namespace {

constexpr uint32_t kCapacity = 16;

MrView view_of(uint64_t address, uint64_t length) {
  MrView view;
  view.access = IBV_ACCESS_LOCAL_WRITE;
  view.pd = 3;
  view.address = address;
  view.length = length;
  view.place = {.segment = 2, .offset = 77};
  return view;
}

class MrTableTest : public ::testing::Test {
 protected:
  // Its generator gives zeroes only: keys must differ all the same.
  base::TestHost host;
  std::vector<MrEntry> published = std::vector<MrEntry>(kCapacity);
  MrTable table{host, kCapacity, published};
};

TEST_F(MrTableTest, AKeyResolvesUntilItIsRemovedHereAndForPeers) {
  const uint32_t key = *table.add(view_of(0x1000, 10));
  MrView found;
  for (int look = 0; look < 2; ++look) {
    ASSERT_TRUE(look == 0 ? table.find(key, found)
                          : read_mr(published[table.index_of(key)], key, found));
    EXPECT_EQ(found.key, key);
    EXPECT_EQ(found.address, 0x1000u);
    EXPECT_EQ(found.length, 10u);
    EXPECT_EQ(found.pd, 3u);
    EXPECT_EQ(found.access, static_cast<uint32_t>(IBV_ACCESS_LOCAL_WRITE));
    EXPECT_EQ(found.place.segment, 2u);
    EXPECT_EQ(found.place.offset, 77u);
  }
  EXPECT_FALSE(table.find(key ^ (kCapacity * 4), found)) << "another tag";
  EXPECT_FALSE(table.find(key ^ 1, found)) << "another entry";
  EXPECT_FALSE(table.find(0, found));
  table.remove(key);
  EXPECT_FALSE(table.find(key, found));
  EXPECT_FALSE(read_mr(published[table.index_of(key)], key, found));
}

TEST_F(MrTableTest, AnEntryUsedAgainHasAnotherKey) {
  uint32_t last = *table.add(view_of(0x1000, 10));
  for (int i = 0; i < 10; ++i) {
    table.remove(last);
    const uint32_t next = *table.add(view_of(0x1000, 10));
    EXPECT_NE(next, last);
    EXPECT_GE(next, kCapacity) << "a tag is never 0";
    last = next;
  }
}

TEST_F(MrTableTest, AFullTableSaysSoAndKeysDiffer) {
  std::set<uint32_t> keys;
  for (uint32_t i = 0; i < kCapacity; ++i) keys.insert(*table.add(view_of(i + 1, 1)));
  EXPECT_EQ(keys.size(), kCapacity);
  EXPECT_EQ(table.add(view_of(1, 1)).code(), base::Errc::kNoMemory);
  table.remove(*keys.begin());
  EXPECT_TRUE(table.add(view_of(1, 1)).ok());
}

TEST_F(MrTableTest, ScribblingOverThePublishedTableHarmsNobodyHere) {
  const uint32_t key = *table.add(view_of(0x1000, 10));
  for (MrEntry& entry : published) {
    entry.generation = 0xffffffff;
    entry.key = 0;
    entry.length = UINT64_MAX;
  }
  MrView found;
  ASSERT_TRUE(table.find(key, found));
  EXPECT_EQ(found.length, 10u);
  table.remove(key);
  EXPECT_FALSE(table.find(key, found));
}

TEST_F(MrTableTest, AReaderNeverSeesHalfOfARegistration) {
  std::atomic<uint32_t> current{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 1; i <= 20'000; ++i) {
      const uint32_t key = *table.add(view_of(i << 12, i));
      current = key;
      table.remove(key);
    }
    stop = true;
  });
  while (!stop) {
    MrView found;
    const uint32_t key = current;
    if (key != 0 && read_mr(published[table.index_of(key)], key, found)) {
      ASSERT_EQ(found.address, found.length << 12);
    }
  }
  writer.join();
}

TEST(MrViewTest, ARangeIsInsideOnlyIfAllOfItIs) {
  MrView view;
  view.address = 0x1000;
  view.length = 0x100;
  EXPECT_TRUE(view.holds(0x1000, 0x100));
  EXPECT_TRUE(view.holds(0x1100, 0));
  EXPECT_FALSE(view.holds(0x1000, 0x101));
  EXPECT_FALSE(view.holds(0xfff, 1));
  EXPECT_FALSE(view.holds(0x1100, 1));
  EXPECT_FALSE(view.holds(UINT64_MAX, 2));
  view.address = UINT64_MAX - 9;
  view.length = 9;
  EXPECT_TRUE(view.holds(UINT64_MAX - 9, 9));
  EXPECT_FALSE(view.holds(UINT64_MAX - 9, 10));
}

}  // namespace
}  // namespace braid::vhca::soft
