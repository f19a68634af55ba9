// Many exports and sessions at a server whose device has few registrations: nobody takes any for
// what he does not use, and who gets none is served all the same.
#include "bnbd/test_rig.h"

namespace braid::bnbd::test {
namespace {

using base::Errc;

constexpr unsigned kExports = 200;

class ManyDevices : public Rig {
 protected:
  ManyDevices() {
    node_devices.registrations_max = 256;
    exports.root.clear();
    for (unsigned i = 0; i < kExports; ++i) {
      exports.named.push_back({NamedExport::Kind::kMemory, "ram" + std::to_string(i), 64 << 10});
    }
    start_server();
  }
  RemoteDevice& open_number(ClientNode& client, unsigned number) {
    return open(client, "ram" + std::to_string(number));
  }
};

TEST_F(ManyDevices, those_that_nobody_opens_take_no_registrations) {
  for (unsigned i = 0; i < 20; ++i) {
    ClientNode& client = add_client("c" + std::to_string(i));
    RemoteDevice& device = open_number(client, i);
    EXPECT_EQ(write(client, device, 4096, 4096, static_cast<int>(i + 1)), Errc::kOk);
    EXPECT_TRUE(reads_as(client, device, 4096, 4096, static_cast<int>(i + 1)));
  }
}

TEST_F(ManyDevices, reads_are_copied_where_their_memory_cannot_be_registered) {
  ClientNode& client = add_client("one");
  for (unsigned i = 0; i < kExports; ++i) {
    RemoteDevice& device = open_number(client, i);
    ASSERT_EQ(write(client, device, 8192, 4096, static_cast<int>(i % 100 + 1)), Errc::kOk) << i;
  }
  // More than half of all registrations are none of lent memory, so there are some left for others.
  for (unsigned i = 0; i < kExports; ++i) {
    ASSERT_TRUE(reads_as(client, *client.devices[i], 8192, 4096, static_cast<int>(i % 100 + 1)))
        << i;
  }
  ClientNode& other = add_client("other");
  EXPECT_TRUE(reads_as(other, open(other, "ram199", wire::AccessMode::kReadOnly), 8192, 4096, 100));
}

TEST_F(ManyDevices, a_client_that_closes_and_opens_them_again_uses_no_more) {
  ClientNode& client = add_client("one");
  for (unsigned round = 0; round < 300; ++round) {
    RemoteDevice& device = open_number(client, round % 10);
    ASSERT_TRUE(reads_as(client, device, 0, 4096, 0)) << round;
    await(client, device.close());
    client.devices.pop_back();
  }
}

}  // namespace
}  // namespace braid::bnbd::test
