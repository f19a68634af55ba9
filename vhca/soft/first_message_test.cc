// A message that comes before the connection manager's last word: the QP in RTR tells of it once.
#include <gtest/gtest.h>

#include <memory>

#include "base/linux_host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "vhca/soft/silent_link_test.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft {
namespace {

TEST(FirstMessageTest, InRtrTheFirstMessageOfThePeerIsAnEvent) {
  const auto host = std::move(*base::create_linux_host({.log_sink = base::make_null_sink()}));
  const auto reactor = std::move(*base::Reactor::create(*host, {}));
  const auto device = std::move(*create_soft_device(*host, *reactor));
  const auto pd = std::move(*device->alloc_pd());
  const auto cq = std::move(*device->create_cq({}));
  const auto qp = std::move(*pd->create_qp({.send_cq = cq.get(), .recv_cq = cq.get()}));
  auto& end = dynamic_cast<SoftQp&>(*qp);
  ASSERT_TRUE(end.establish(std::make_unique<SilentLink>(), 5, {}).ok());
  ASSERT_EQ(qp->query().qp_state, IBV_QPS_RTR);
  EXPECT_FALSE(device->next_async_event().has_value());

  std::span<const std::byte> result;
  Request write{.opcode = IBV_WR_RDMA_WRITE};
  for (write.sequence = 0; write.sequence < 2; ++write.sequence) {
    EXPECT_EQ(end.respond(write, {}, &result).kind, Answer::Kind::kAck);
  }
  const auto event = device->next_async_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->type, IBV_EVENT_COMM_EST);
  EXPECT_EQ(event->qp, qp.get());
  EXPECT_FALSE(device->next_async_event().has_value()) << "once";

  ASSERT_TRUE(end.start_sending().ok());
  EXPECT_EQ(end.respond(write, {}, &result).kind, Answer::Kind::kAck);
  EXPECT_FALSE(device->next_async_event().has_value()) << "in RTS all know";
}

}  // namespace
}  // namespace braid::vhca::soft
