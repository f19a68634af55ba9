// A server comes back that has no memory or no descriptors for a while: for the path, or just for
// the devices that are opened again on it. Mappings stay, what is held is done once.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using base::sim::SimShortage;
using test::ClientNode;
using test::Io;

constexpr SimShortage kMemory{.memory = true};
constexpr SimShortage kDescriptors{.descriptors = true};

class Shortage : public test::ServedRig, public ::testing::WithParamInterface<SimShortage> {
 protected:
  Shortage() : client(add_client()) {}
  /// Away with a write held, and back.
  void restart_with(RemoteDevice& device, Io& held) {
    ASSERT_EQ(write(client, device, 0, 4096, 1), Errc::kOk);
    kill_server();
    ASSERT_TRUE(until([&] { return device.state() == RemoteState::kPathDown; }));
    submit(client, device, held);
    start_server();
  }
  void expect_done_and_open(RemoteDevice& device, Io& held) {
    EXPECT_EQ(wait(held), Errc::kOk) << device.explain();
    EXPECT_EQ(held.completions, 1);
    EXPECT_EQ(device.state(), RemoteState::kOpen);
    EXPECT_TRUE(reads_as(client, device, 0, 4096, 1));
    EXPECT_TRUE(reads_as(client, device, 4096, 4096, 2));
  }
  ClientNode& client;
};

TEST_P(Shortage, of_a_server_for_a_path_keeps_the_mapping_until_it_is_over) {
  RemoteDevice& device = open(client);
  Io held(BlockOp::kWrite, 4096, 4096, 2);
  ASSERT_NO_FATAL_FAILURE(restart_with(device, held));
  server_host->run_short(GetParam());
  world.run_for(20 * base::kSecond);
  EXPECT_GE(server_host->refusals(), 3u);
  EXPECT_EQ(device.state(), RemoteState::kPathDown);
  EXPECT_FALSE(held.status.has_value());
  server_host->enough();
  expect_done_and_open(device, held);
}

TEST_P(Shortage, of_a_client_for_a_path_keeps_the_mapping_until_it_is_over) {
  RemoteDevice& device = open(client);
  client.host.run_short(GetParam());
  Io held(BlockOp::kWrite, 4096, 4096, 2);
  ASSERT_NO_FATAL_FAILURE(restart_with(device, held));
  world.run_for(20 * base::kSecond);
  EXPECT_GE(client.host.refusals(), 3u);
  EXPECT_EQ(device.state(), RemoteState::kPathDown);
  EXPECT_NE(device.explain().find("cannot create memory for trs headers"), std::string::npos)
      << device.explain();
  EXPECT_FALSE(held.status.has_value());
  client.host.enough();
  expect_done_and_open(device, held);
}

TEST_P(Shortage, of_a_server_for_a_device_has_it_opened_later_on_the_same_path) {
  RemoteDevice& device = open(client);
  Io held(BlockOp::kWrite, 4096, 4096, 2);
  ASSERT_NO_FATAL_FAILURE(restart_with(device, held));
  // What the path takes is there, and no device is open on it yet.
  ASSERT_TRUE(until([&] { return client.session->paths()[0].connected; }));
  ASSERT_TRUE(server->exports().front().holders.empty() &&
              server->exports().back().holders.empty());
  server_host->run_short(GetParam());
  ASSERT_TRUE(until([&] { return device.state() == RemoteState::kUnavailable; }))
      << device.explain();
  const std::string why = std::string("cannot open \"disk.img\": ") +
                          (GetParam().memory ? "Cannot allocate memory" : "Too many open files");
  EXPECT_NE(device.explain().find(why), std::string::npos) << device.explain();
  world.run_for(20 * base::kSecond);
  EXPECT_GE(server_host->refusals(), 3u) << "it is tried again";
  EXPECT_FALSE(held.status.has_value());
  server_host->enough();
  expect_done_and_open(device, held);
  EXPECT_EQ(server->sessions().size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Of, Shortage, ::testing::Values(kMemory, kDescriptors),
                         [](const auto& each) {
                           return std::string(each.param.memory ? "memory" : "descriptors");
                         });

}  // namespace
}  // namespace braid::bnbd
