// What only some devices can do, and hints: each works from the client's user to the disk, or is
// refused in words.
#include <gtest/gtest.h>

#include "base/host.h"
#include "bnbd/test_fake_server.h"
#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using wire::AccessMode;

class Limits : public test::Rig {
 protected:
  Limits() {
    exports.block_devices = true;
    exports.named = {{NamedExport::Kind::kMemory, "ram", 1 << 20}};
    raw = &server_machine.add_disk("/exports/raw",
                                   {.size_bytes = 4 << 20, .block_device = true, .erases = true});
    start_server();
    client = &add_client();
  }
  base::sim::SimDisk* raw = nullptr;
  ClientNode* client = nullptr;
};

TEST_F(Limits, a_disk_that_can_erases_for_good) {
  RemoteDevice& device = open(*client, "raw");
  EXPECT_GT(device.info().max_secure_erase_bytes, 0u);
  ASSERT_EQ(write(*client, device, 0, 64 << 10, 1), Errc::kOk);
  ASSERT_EQ(flush(*client, device), Errc::kOk);
  ASSERT_EQ(run(*client, device, Io(BlockOp::kSecureErase, 4096, 8192)), Errc::kOk);
  for (const auto image : {raw->current(), raw->durable()}) {
    EXPECT_EQ(image[4095], std::byte{1});
    EXPECT_EQ(image[4096], std::byte{0});
    EXPECT_EQ(image[12287], std::byte{0});
    EXPECT_EQ(image[12288], std::byte{1});
  }
  EXPECT_EQ(device.statistics().secure_erases, 1u);
  EXPECT_EQ(run(*client, device, Io(BlockOp::kSecureErase, 4 << 20, 4096)), Errc::kOutOfRange);
  raw->faults = {.errors_per_million = 1'000'000};
  EXPECT_EQ(run(*client, device, Io(BlockOp::kSecureErase, 0, 4096)), Errc::kIo);
}

TEST_F(Limits, files_and_memory_erase_nothing_for_good_and_say_so) {
  for (const char* name : {"disk.img", "ram"}) {
    RemoteDevice& device = open(*client, name);
    ASSERT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
    EXPECT_EQ(device.info().max_secure_erase_bytes, 0u);
    EXPECT_EQ(run(*client, device, Io(BlockOp::kSecureErase, 0, 4096)), Errc::kNotSupported);
    EXPECT_TRUE(reads_as(*client, device, 0, 4096, 1));
  }
}

TEST_F(Limits, who_reads_only_erases_nothing) {
  RemoteDevice& device = open(*client, "raw", AccessMode::kReadOnly);
  EXPECT_EQ(run(*client, device, Io(BlockOp::kSecureErase, 0, 4096)), Errc::kReadOnly);
}

class Hints : public test::FakeRig {};

TEST_F(Hints, a_priority_goes_with_its_request) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  const auto idle = static_cast<uint16_t>(3 << base::kIoPriorityClassShift);
  Io io(BlockOp::kWrite, 0, 4096, 1);
  io.request.priority = idle;
  ASSERT_EQ(run(client, device, io), Errc::kOk);
  ASSERT_EQ(write(client, device, 0, 4096, 1), Errc::kOk);
  ASSERT_EQ(script.seen.size(), 2u);
  EXPECT_EQ(script.seen[0].priority, idle);
  EXPECT_EQ(script.seen[1].priority, 0);
}

TEST_F(Hints, a_server_of_version_1_is_sent_no_priority) {
  script.version = 1;
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  Io io(BlockOp::kRead, 0, 4096);
  io.request.priority = 3 << base::kIoPriorityClassShift;
  ASSERT_EQ(run(client, device, io), Errc::kOk);
  EXPECT_EQ(script.seen.at(0).priority, 0);
}

}  // namespace
}  // namespace braid::bnbd
