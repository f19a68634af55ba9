// A listener of an RDMA device whose peers ask for more than it takes, on fakes of the libraries.
#include <gtest/gtest.h>

#include "vhca/ibv/fakes_test.h"

namespace braid::vhca::ibv {
namespace {

class IbvListeners : public IbvFakes {
 protected:
  IbvListeners() {
    make_qp();
    listener = std::move(*device->listen(*reactor, {"10.0.0.1", 1234}, 1));
    channel = made.ids.front().channel;
  }
  ~IbvListeners() override { listener.reset(); }
  /// Somebody connects, through the device of this name.
  void ask(const char* through) {
    std::snprintf(made.device.name, sizeof made.device.name, "%s", through);
    rdma_cm_id& id = made.ids.emplace_back();
    id.verbs = &made.context;
    made.cm_events.emplace_back(channel, cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, id));
  }
  void hear() {
    BRAID_ASSERT(::eventfd_write(channel->fd, 1) == 0);
    while (!made.cm_events.empty()) reactor->turn();
  }
  std::unique_ptr<Listener> listener;
  rdma_event_channel* channel = nullptr;
};

TEST_F(IbvListeners, WhoAsksForEverDoesNotFloodTheLog) {
  for (int i = 0; i < 5000; ++i) ask("");
  hear();
  EXPECT_GE(made.ids_destroyed, 4999) << "one waits, the others are refused";
  listener.reset();
  const size_t told = lines_with("connect requests wait");
  EXPECT_GE(told, 1u);
  EXPECT_LE(told, 100u);
}

}  // namespace
}  // namespace braid::vhca::ibv
