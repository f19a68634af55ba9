#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "bnbd/server/session.h"

namespace braid::bnbd::server {
namespace {

/// The table looks at ids only.
struct Fake {
  alignas(SessionDevice) std::byte bytes[sizeof(SessionDevice)] = {};
  SessionDevice& device() { return *reinterpret_cast<SessionDevice*>(bytes); }
  explicit Fake(uint32_t id) { device().id = id; }
};

TEST(DeviceIds, each_is_found_and_nothing_else_however_they_come_and_go) {
  DeviceIds ids;
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Fake>> there;
  std::vector<uint32_t> gone;
  for (int step = 0; step < 30000; ++step) {
    const bool add = there.empty() || (there.size() < kDevicesMax && random() % 5 < 3);
    if (add) {
      ids.make_room(there.size());
      uint32_t id = 0;
      unsigned draws = 0;
      do {
        id = random();
        ASSERT_LT(++draws, 200u) << "at least half of the places are free";
      } while (id == 0 || !ids.takes(id));
      ids.put(there.emplace_back(std::make_unique<Fake>(id))->device());
    } else {
      std::swap(there[random() % there.size()], there.back());
      gone.push_back(there.back()->device().id);
      ids.remove(there.back()->device());
      there.pop_back();
    }
    if (step % 100 != 0) continue;
    std::unordered_map<uint32_t, SessionDevice*> all;
    for (const auto& each : there) all[each->device().id] = &each->device();
    for (const auto& [id, device] : all) {
      ASSERT_EQ(ids.find(id), device);
      ASSERT_EQ(ids.find(id ^ 1u << 31), nullptr) << "its place, and another id";
    }
    for (const uint32_t id : gone) ASSERT_EQ(ids.find(id) != nullptr, all.contains(id));
    ASSERT_EQ(ids.find(0), nullptr);
  }
  EXPECT_GT(there.size(), kDevicesMax - 100) << "it was as full as it gets";
}

}  // namespace
}  // namespace braid::bnbd::server
