// A session that is closed while a device of it is being opened: whichever comes first, the opener
// gets a device that is his to close, or is told why he has none.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;

/// Reactors of the client: with several, a device joins them by messages.
class CloseSession : public test::Rig, public testing::WithParamInterface<size_t> {
 protected:
  CloseSession() {
    client_reactors = GetParam();
    exports.transport.queue_depth = 128;
    start_server();
  }
  static base::Task<void> close(RemoteSession& session, bool& closed) {
    co_await session.close();
    closed = true;
  }
};

TEST_P(CloseSession, at_any_moment_of_an_opening_leaves_nobody_a_device_of_it) {
  unsigned opened_first = 0, refused = 0;
  for (unsigned moment = 0; moment < 60; ++moment) {
    ClientNode& client = add_client("client" + std::to_string(moment));
    const auto opened = begin_open(client, "disk.img");
    world.run_for(moment * 5 * base::kMicrosecond);
    const bool before = opened->has_value();
    bool closed = false;
    client.home().spawn(close(*client.session, closed));
    client.home().wake();
    ASSERT_TRUE(until([&] { return closed; })) << "moment " << moment;
    ASSERT_TRUE(until([&] { return opened->has_value(); })) << "moment " << moment;
    if (before) {
      ASSERT_TRUE((*opened)->ok()) << (*opened)->error().message();
      EXPECT_EQ((*opened)->value()->status().state, RemoteState::kClosed);
    } else {
      EXPECT_FALSE((*opened)->ok()) << "moment " << moment;
    }
    ++(before ? opened_first : refused);
    opened->reset();
    client.session.reset();
    ASSERT_TRUE(until([&] { return server->sessions().empty(); }));
  }
  EXPECT_GT(opened_first, 0u);
  EXPECT_GT(refused, 0u);
}

INSTANTIATE_TEST_SUITE_P(Reactors, CloseSession, testing::Values(1, 2, 3));

}  // namespace
}  // namespace braid::bnbd
