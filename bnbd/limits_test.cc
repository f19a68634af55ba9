// What only some devices can do, and hints: each works from the client's user to the disk, or is
// refused in words.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

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

TEST_F(Limits, an_erasure_that_is_to_be_durable_has_a_flush_behind_it) {
  RemoteDevice& device = open(*client, "raw");
  for (const bool durable : {false, true}) {
    ASSERT_EQ(write(*client, device, 64 << 10, 4096, 2), Errc::kOk);
    Io erase(BlockOp::kSecureErase, 0, 4096);
    erase.request.force_unit_access = durable;
    const uint64_t before = raw->counters().operations;
    ASSERT_EQ(run(*client, device, erase), Errc::kOk);
    EXPECT_EQ(raw->counters().operations - before, durable ? 2u : 1u);
    EXPECT_EQ(raw->durable()[64 << 10], std::byte(durable ? 2 : 0));
  }
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

/// What the server hands its disk.
class AtTheDisk : public Limits {
 protected:
  struct Handed {
    base::IoOpcode opcode;
    uint16_t priority;
    uint64_t offset_bytes, length_bytes;
  };
  AtTheDisk() {
    raw->on_operation = [this](const base::IoOp& op) {
      handed.push_back({op.opcode, op.priority, op.offset_bytes, op.length_bytes});
    };
  }
  /// What comes of a request that the disk does as one.
  Handed only(Io& io) {
    handed.clear();
    EXPECT_EQ(run(*client, *device, io), Errc::kOk);
    EXPECT_EQ(handed.size(), 1u);
    return handed.empty() ? Handed{} : handed[0];
  }
  std::vector<Handed> handed;
  RemoteDevice* const device = &open(*client, "raw");
};

TEST_F(AtTheDisk, zeroes_stay_allocated_if_the_user_says_so) {
  for (const bool no_unmap : {false, true}) {
    Io zeroes(BlockOp::kWriteZeroes, 4096, 8192);
    zeroes.request.no_unmap = no_unmap;
    const Handed op = only(zeroes);
    EXPECT_EQ(op.opcode, no_unmap ? base::IoOpcode::kWriteZeroes : base::IoOpcode::kDiscard);
    EXPECT_EQ(op.offset_bytes, 4096u);
    EXPECT_EQ(op.length_bytes, 8192u);
  }
}

TEST_F(AtTheDisk, a_request_has_the_priority_that_its_user_gave_it) {
  const auto idle = static_cast<uint16_t>(3 << base::kIoPriorityClassShift);
  const auto real_time = static_cast<uint16_t>(1 << base::kIoPriorityClassShift);
  const auto urgent = static_cast<uint16_t>(2 << base::kIoPriorityClassShift);
  for (const BlockOp kind : {BlockOp::kRead, BlockOp::kWrite}) {
    for (const auto& [given, heeded] : {std::pair{idle, idle}, {real_time, urgent}, {{}, {}}}) {
      Io io(kind, 0, 4096, 1);
      io.request.priority = given;
      EXPECT_EQ(only(io).priority, heeded);
    }
  }
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
