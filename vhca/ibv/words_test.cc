// What a person reads when there is no RDMA device, or one that does not do what was asked. Needs
// no device.
#include "vhca/ibv/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace braid::vhca::ibv {
namespace {

using base::Errc;
using ::testing::HasSubstr;

TEST(IbvWords, ARejectSaysWhatTheReasonMeans) {
  const base::Error nobody = connect_error(RDMA_CM_EVENT_REJECTED, 8, "10.0.0.2:1234");
  EXPECT_EQ(nobody.code(), Errc::kRefused);
  EXPECT_EQ(nobody.message(), "nobody listens at 10.0.0.2:1234");
  const base::Error iwarp = connect_error(RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, "10.0.0.2:1");
  EXPECT_EQ(iwarp.code(), Errc::kRefused);
  const base::Error stale = connect_error(RDMA_CM_EVENT_REJECTED, 10, "10.0.0.2:1");
  EXPECT_THAT(stale.message(), HasSubstr("former connection"));
  const base::Error other = connect_error(RDMA_CM_EVENT_REJECTED, 17, "10.0.0.2:1");
  EXPECT_EQ(other.code(), Errc::kRefused);
  EXPECT_THAT(other.message(), HasSubstr("17"));
  EXPECT_EQ(connect_error(RDMA_CM_EVENT_REJECTED, 4, "x").code(), Errc::kDisconnected);
}

TEST(IbvWords, OnlyAProgramsRejectHasItsPrivateData) {
  EXPECT_TRUE(rejected_by_program(RDMA_CM_EVENT_REJECTED, 28));
  EXPECT_FALSE(rejected_by_program(RDMA_CM_EVENT_REJECTED, 8));
  EXPECT_FALSE(rejected_by_program(RDMA_CM_EVENT_UNREACHABLE, 28));
}

TEST(IbvWords, SilenceIsATimeOutAndADeadEndIsNot) {
  EXPECT_EQ(connect_error(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, "x").code(), Errc::kTimedOut);
  EXPECT_EQ(connect_error(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, "x").code(), Errc::kTimedOut);
  const base::Error no_device = connect_error(RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, "10.9.0.1:1");
  EXPECT_NE(no_device.code(), Errc::kTimedOut);
  EXPECT_THAT(no_device.message(), HasSubstr("10.9.0.1:1"));
  EXPECT_EQ(connect_error(RDMA_CM_EVENT_DEVICE_REMOVAL, 0, "x").code(), Errc::kDisconnected);
  EXPECT_EQ(connect_error(RDMA_CM_EVENT_MULTICAST_JOIN, 0, "x").code(), Errc::kProtocol);
}

TEST(IbvWords, ErrorsOfVerbsSayWhatIsMostlyBehindThem) {
  const base::Error memory = verbs_error(ENOMEM, "registering 4096 bytes of memory");
  EXPECT_EQ(memory.code(), Errc::kNoMemory);
  EXPECT_THAT(memory.message(), HasSubstr("ulimit -l"));
  const base::Error permission = verbs_error(EACCES, "opening RDMA device mlx5_0");
  EXPECT_EQ(permission.code(), Errc::kPermission);
  EXPECT_THAT(permission.message(), HasSubstr("/dev/infiniband"));
  const base::Error kernel = no_rdma_error(ENOSYS, "looking for RDMA devices");
  EXPECT_EQ(kernel.code(), Errc::kNotSupported);
  EXPECT_THAT(kernel.message(), HasSubstr("ib_uverbs"));
  EXPECT_EQ(no_rdma_error(EPERM, "looking").code(), Errc::kPermission);
}

Gid gid(std::initializer_list<uint8_t> last, uint8_t first = 0) {
  Gid made{};
  made.raw[0] = first;
  std::copy(last.begin(), last.end(), made.raw + 16 - last.size());
  return made;
}

TEST(IbvWords, GidsAreAddressesOrNothing) {
  EXPECT_EQ(gid_ip_text(gid({0xff, 0xff, 10, 10, 0, 2})), "10.10.0.2");
  EXPECT_EQ(gid_ip_text(gid({1}, 0xfd)), "fd00::1");
  EXPECT_EQ(gid_ip_text(gid({})), "") << "an empty slot of the table";
  Gid link_local = gid({1}, 0xfe);
  link_local.raw[1] = 0x80;
  EXPECT_EQ(gid_ip_text(link_local), "");
}

TEST(IbvWords, PortStatesHaveTheNamesOfVerbs) {
  EXPECT_EQ(port_state_text(IBV_PORT_ACTIVE), "ACTIVE");
  EXPECT_EQ(port_state_text(IBV_PORT_DOWN), "DOWN");
  // No enumerator; 7 is the largest that the type can hold.
  EXPECT_EQ(port_state_text(static_cast<ibv_port_state>(7)), "unknown");
}

}  // namespace
}  // namespace braid::vhca::ibv
