// Keys resolve to what was registered, only while it is, and never twice in a row to the same
// value.
#include "vhca/soft/mr_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/linux_host.h"
#include "base/log.h"
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
  EXPECT_FALSE(table.find(key ^ 1, found)) << "another tag, low";
  EXPECT_FALSE(table.find(key ^ 1u << 31, found)) << "another tag, high";
  EXPECT_FALSE(table.find(key ^ 1u << kKeyLowBits, found)) << "another entry";
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
    EXPECT_NE(next & ~((kCapacity - 1) << kKeyLowBits), 0u) << "a tag is never 0";
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

// --- windows

MrView bindable(uint64_t address, uint64_t length) {
  MrView view = view_of(address, length);
  view.access |= IBV_ACCESS_MW_BIND;
  return view;
}

TEST_F(MrTableTest, AWindowResolvesFromBindToInvalidation) {
  const uint32_t mr = *table.add(bindable(0x1000, 100));
  const uint32_t window = *table.add_window(3);
  MrView found;
  EXPECT_FALSE(table.find(window, found)) << "not bound";
  MrTable::Binding binding{.key = window ^ 0x5a,
                           .pd = 3,
                           .qp = 7,
                           .mr_key = mr,
                           .access = IBV_ACCESS_REMOTE_READ,
                           .address = 0x1010,
                           .length = 16};
  ASSERT_TRUE(table.bind(binding));
  EXPECT_TRUE(table.has_windows(mr));
  ASSERT_TRUE(read_mr(published[table.index_of(window)], binding.key, found));
  EXPECT_EQ(found.pd, window_scope(7));
  EXPECT_EQ(found.address, 0x1010u);
  EXPECT_EQ(found.length, 16u);
  EXPECT_EQ(found.access, static_cast<uint32_t>(IBV_ACCESS_REMOTE_READ));
  EXPECT_EQ(found.place.segment, 2u);
  EXPECT_EQ(found.place.offset, 77u + 16);
  EXPECT_FALSE(table.bind(binding)) << "it is bound";
  EXPECT_FALSE(table.invalidate(binding.key, 8)) << "of another QP";
  EXPECT_FALSE(table.invalidate(window, 7)) << "not its present key";
  EXPECT_FALSE(table.invalidate(mr, 7)) << "no window";
  ASSERT_TRUE(table.invalidate(binding.key, 7));
  EXPECT_FALSE(table.find(binding.key, found));
  EXPECT_FALSE(read_mr(published[table.index_of(window)], binding.key, found));
  EXPECT_FALSE(table.invalidate(binding.key, 7)) << "once";
  EXPECT_FALSE(table.has_windows(mr));
}

TEST_F(MrTableTest, WhoeverGoesTakesTheBindingAlong) {
  MrView found;
  const auto bound = [&](uint32_t mr, uint32_t window) {
    return table.bind(
        {.key = window, .pd = 3, .qp = 7, .mr_key = mr, .address = 0x1000, .length = 8});
  };
  uint32_t mr = *table.add(bindable(0x1000, 100));
  uint32_t window = *table.add_window(3);
  ASSERT_TRUE(bound(mr, window));
  EXPECT_EQ(table.remove(mr), kEveryKey) << "a window was bound";
  EXPECT_FALSE(table.find(window, found));
  mr = *table.add(bindable(0x1000, 100));
  ASSERT_TRUE(bound(mr, window)) << "the window is there still";
  table.unbind_windows_of_qp(8);
  EXPECT_TRUE(table.find(window, found));
  table.unbind_windows_of_qp(7);
  EXPECT_FALSE(table.find(window, found));
  ASSERT_TRUE(bound(mr, window));
  EXPECT_EQ(table.remove_window(window), kEveryKey) << "its key went with QP 7";
  EXPECT_FALSE(table.find(window, found));
  EXPECT_EQ(table.remove(mr), kEveryKey);
  EXPECT_FALSE(bound(mr, window));
}

TEST_F(MrTableTest, WhatIsFencedIsKnownUntilItIs) {
  const uint32_t mr = *table.add(bindable(0x1000, 100));
  const uint32_t window = *table.add_window(3);
  const uint32_t idle = *table.add_window(3);
  const MrTable::Binding binding{
      .key = window, .pd = 3, .qp = 7, .mr_key = mr, .address = 0x1000, .length = 8};
  ASSERT_TRUE(table.bind(binding));
  ASSERT_TRUE(table.invalidate(window, 7));
  table.fenced(window);
  table.fenced(window);  // once is enough
  ASSERT_TRUE(table.bind(binding));
  EXPECT_EQ(table.remove_window(idle), std::nullopt) << "it was never bound";
  ASSERT_TRUE(table.invalidate(window, 7));
  table.fenced(window);
  EXPECT_EQ(table.remove_window(window), std::nullopt);
  EXPECT_EQ(table.remove(mr), mr) << "all other keys are fenced";
  const uint32_t next_mr = *table.add(bindable(0x1000, 100));
  const uint32_t next = *table.add_window(3);
  ASSERT_TRUE(table.bind(
      {.key = next, .pd = 3, .qp = 7, .mr_key = next_mr, .address = 0x1000, .length = 8}));
  EXPECT_EQ(table.remove_window(next), next);
  EXPECT_EQ(table.remove(next_mr), kEveryKey) << "the window's fence may still wait";
}

// --- keys

TEST_F(MrTableTest, TheFenceOfMemoryIsThatOfItsWindows) {
  const uint32_t mr = *table.add(bindable(0x1000, 100));
  const uint32_t other = *table.add(bindable(0x2000, 100));
  const uint32_t window = *table.add_window(3);
  const uint32_t mover = *table.add_window(3);
  const auto bind = [&](uint32_t key, uint32_t to, uint64_t address) {
    return table.bind(
        {.key = key, .pd = 3, .qp = 7, .mr_key = to, .address = address, .length = 8});
  };
  ASSERT_TRUE(bind(window, mr, 0x1000));
  ASSERT_TRUE(bind(mover, other, 0x2000));
  table.unbind_windows_of_qp(7);
  ASSERT_TRUE(bind(mover, mr, 0x1000));
  table.unbind_windows_of_qp(7);
  EXPECT_EQ(table.remove(mr), kEveryKey);
  EXPECT_EQ(table.remove_window(window), std::nullopt) << "nothing is left that a fence would keep";
  EXPECT_EQ(table.remove_window(mover), kEveryKey) << "the other memory is still there";
}

TEST(MrTableKeysTest, AMillionKeysShowNoStructure) {
  const std::unique_ptr<base::Host> linux_host =
      std::move(*base::create_linux_host({.log_sink = base::make_null_sink()}));
  constexpr uint32_t kEntries = 8192;
  constexpr int kKeys = 1'000'000;
  constexpr double kDeviation = 5 * 500;  // five times the standard deviation of a fair coin
  MrTable keys(*linux_host, kEntries, {});
  int ones[32] = {}, changes[32] = {};
  std::vector<uint32_t> seen, used(kEntries);
  seen.reserve(kKeys);
  uint32_t last = 0;
  for (int i = 0; i < kKeys; ++i) {
    const uint32_t key = *keys.add(view_of(0x1000, 10));
    keys.remove(key);
    for (int bit = 0; bit < 32; ++bit) {
      ones[bit] += static_cast<int>(key >> bit & 1);
      changes[bit] += static_cast<int>((key ^ last) >> bit & 1);
    }
    ++used[keys.index_of(key)];
    seen.push_back(last = key);
  }
  for (int bit = 0; bit < 32; ++bit) {
    EXPECT_NEAR(ones[bit], kKeys / 2.0, kDeviation) << "bit " << bit;
    EXPECT_NEAR(changes[bit], kKeys / 2.0, kDeviation)
        << "bit " << bit << " against the key before";
  }
  // Each place of the table as often as any other (chi-square; its deviation is sqrt(2 * places)).
  const double expected = static_cast<double>(kKeys) / kEntries;
  double chi_square = 0;
  for (const uint32_t count : used)
    chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_NEAR(chi_square, kEntries, 6 * std::sqrt(2.0 * kEntries));
  // Of a million draws among 2^32 some 116 meet one that came before.
  std::sort(seen.begin(), seen.end());
  const auto repeats = seen.end() - std::unique(seen.begin(), seen.end());
  EXPECT_GT(repeats, 40);
  EXPECT_LT(repeats, 250);
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

TEST_F(MrTableTest, WindowsLeaveHalfOfTheTableToMemory) {
  std::vector<uint32_t> windows;
  for (uint32_t i = 0; i < kCapacity / 2; ++i) windows.push_back(*table.add_window(3));
  EXPECT_EQ(table.add_window(3).code(), base::Errc::kNoMemory);
  for (uint32_t i = 0; i < kCapacity / 2; ++i) EXPECT_TRUE(table.add(view_of(4096, 64)).ok());
  EXPECT_EQ(table.add(view_of(4096, 64)).code(), base::Errc::kNoMemory);
  for (const uint32_t window : windows) EXPECT_FALSE(table.remove_window(window).has_value());
  EXPECT_EQ(table.add_window(3).code(), base::Errc::kNoMemory) << "memory has that half";
}

}  // namespace
}  // namespace braid::vhca::soft
