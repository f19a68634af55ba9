// The operator takes away what clients are still opening, as its disk does not answer yet: at
// whatever moment he comes, he finds it, and it stays away.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using wire::AccessMode;

constexpr const char* kFirst = "disk.img";
constexpr const char* kOtherFile = "other.img";

class CloseOpening : public test::Rig {
 protected:
  CloseOpening() {
    other = &server_machine.add_disk("/exports/other.img", {.size_bytes = 1 << 20});
    exports.lock_patience_ns = base::kNever;  // so that an opening hangs while the lock is taken
    exports.transport.queue_depth = 128;      // enough for several admin permits
    start_server();
    client = &add_client();
  }
  unsigned take(const std::string& exported, const std::string& session = "") {
    auto closed = server->force_close({exported, session});
    EXPECT_TRUE(closed.ok()) << closed.error().message();
    return closed.ok() ? closed->devices : 0;
  }
  size_t open_at_server() const {
    size_t count = 0;
    for (const SessionStatus& session : server->session_statuses()) count += session.devices.size();
    return count;
  }
  using Opened = std::shared_ptr<std::optional<OpenResult>>;
  void expect_refused(const Opened& opened) {
    ASSERT_TRUE(until([&] { return opened->has_value(); }));
    ASSERT_EQ((*opened)->code(), Errc::kCanceled);
    EXPECT_NE((*opened)->error().message().find("operator has closed"), std::string::npos)
        << (*opened)->error().message();
  }
  void expect_open(const Opened& opened) {
    ASSERT_TRUE(until([&] { return opened->has_value(); }));
    ASSERT_TRUE((*opened)->ok()) << (*opened)->error().message();
    await(*client, (*opened)->value()->close());
  }

  base::sim::SimDisk* other = nullptr;
  ClientNode* client = nullptr;
};

TEST_F(CloseOpening, of_two_that_hang_side_by_side_the_one_that_was_named_is_taken) {
  auto first_lock = take_lock(*disk);
  auto second_lock = take_lock(*other);
  const auto first = begin_open(*client, kFirst);
  const auto second = begin_open(*client, kOtherFile);
  world.run_for(20 * base::kMillisecond);
  EXPECT_EQ(take(kFirst), 1u);
  first_lock.reset();
  second_lock.reset();
  expect_refused(first);
  expect_open(second);
}

TEST_F(CloseOpening, a_session_loses_all_that_it_is_opening) {
  auto first_lock = take_lock(*disk);
  auto second_lock = take_lock(*other);
  const auto first = begin_open(*client, kFirst);
  const auto second = begin_open(*client, kOtherFile);
  world.run_for(20 * base::kMillisecond);
  EXPECT_EQ(take("", "client"), 2u);
  first_lock.reset();
  second_lock.reset();
  ASSERT_TRUE(until([&] { return first->has_value() && second->has_value(); }));
  EXPECT_FALSE((*first)->ok());
  EXPECT_FALSE((*second)->ok());
  world.run_for(base::kSecond);
  EXPECT_EQ(open_at_server(), 0u);
}

TEST_F(CloseOpening, a_first_opening_is_found_and_refused_whenever_the_operator_comes) {
  for (unsigned after_ms = 10; after_ms < 800; after_ms += 30) {
    auto lock = take_lock(*disk);
    const auto opened = begin_open(*client, kFirst);
    world.run_for(after_ms * base::kMillisecond);
    ASSERT_EQ(take(kFirst), 1u) << "after " << after_ms << " ms";
    lock.reset();
    expect_refused(opened);
    EXPECT_EQ(open_at_server(), 0u);
    const auto again = begin_open(*client, kFirst);
    expect_open(again);
    ASSERT_FALSE(HasFailure()) << "after " << after_ms << " ms";
    world.run_for(20 * base::kSecond);  // nobody has the file open any more
  }
}

TEST_F(CloseOpening, a_reopening_is_found_and_refused_whenever_the_operator_comes) {
  RemoteDevice& first = open(*client, kFirst);
  RemoteDevice& second = open(*client, kOtherFile);
  for (unsigned after_ms = 0; after_ms < 500; after_ms += 35) {
    kill_server();
    auto first_lock = take_lock(*disk);
    auto second_lock = take_lock(*other);
    start_server();
    for (RemoteDevice* device : {&first, &second})
      ASSERT_TRUE(until([&] { return device->state() == RemoteState::kUnavailable; }));
    world.run_for(after_ms * base::kMillisecond);
    if (after_ms % 2 == 0) {
      ASSERT_EQ(take(kFirst), 1u) << "after " << after_ms << " ms";
      ASSERT_EQ(take(kOtherFile), 1u) << "after " << after_ms << " ms";
    } else {
      ASSERT_EQ(take("", "client"), 2u) << "after " << after_ms << " ms";
    }
    first_lock.reset();
    second_lock.reset();
    world.run_for(100 * base::kMillisecond);  // the disks are open
    for (RemoteDevice* device : {&first, &second}) {
      ASSERT_TRUE(until([&] { return device->state() == RemoteState::kRevoked; }));
      ASSERT_TRUE(until([&] { return client->session->state() == trs::SessionState::kConnected; }));
      const base::Status back = await(*client, device->remap());
      ASSERT_TRUE(back.ok()) << back.error().message();
    }
  }
}

TEST_F(CloseOpening, a_client_that_has_given_up_is_not_found_for_ever) {
  auto lock = take_lock(*disk);
  const auto opened = begin_open(*client, kFirst);
  ASSERT_TRUE(until([&] { return opened->has_value(); }));
  ASSERT_EQ((*opened)->code(), Errc::kTimedOut);
  world.run_for(20 * base::kSecond);
  EXPECT_EQ(server->force_close({kFirst, ""}).code(), Errc::kNotFound);
  const auto again = begin_open(*client, kFirst);
  world.run_for(20 * base::kMillisecond);
  lock.reset();
  expect_open(again);
}

TEST_F(CloseOpening, who_is_refused_for_another_writer_stays_refused) {
  ClientNode& writer = add_client("writer");
  ClientNode& twin = add_client("twin");
  ClientNode& same_name = add_client("twin");
  open(*client, kFirst, AccessMode::kReadOnly);  // the file is open
  world.timing().work_min_ns = world.timing().work_max_ns = 200 * base::kMillisecond;
  const auto written = begin_open(writer, kFirst);  // its tenure is being recorded
  const auto taken = begin_open(twin, kFirst);      // waits for that
  world.run_for(20 * base::kMillisecond);
  ASSERT_EQ(take(kFirst, "twin"), 1u);
  open(same_name, kFirst, AccessMode::kReadOnly);  // the operator's word counts no longer for it
  ASSERT_FALSE(written->has_value() || taken->has_value());
  ASSERT_TRUE(until([&] { return written->has_value() && taken->has_value(); }));
  EXPECT_TRUE((*written)->ok());
  EXPECT_FALSE((*taken)->ok());
  unsigned writers = 0;
  for (const ExportStatus& exported : server->exports()) {
    for (const HolderStatus& holder : exported.holders) writers += holder.mode != "ro";
  }
  EXPECT_EQ(writers, 1u);
}

}  // namespace
}  // namespace braid::bnbd
