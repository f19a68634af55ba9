// What a guard that copies leaves to a memory device, which moves each byte of a write once itself.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"
#include "trs/server.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;

constexpr uint32_t kMovedBytes = 16 << 10;

class MovedData : public test::Rig {
 protected:
  MovedData() {
    exports.named = {{NamedExport::Kind::kMemory, "ram", 1 << 20}};
    exports.transport.guard = trs::ChunkGuard::kCopy;
  }
  /// By the guard, so far.
  uint64_t copied_bytes() const {
    uint64_t sum = 0;
    for (const trs::ServerSession* session : server->sessions())
      for (const auto& path : session->path_statistics())
        for (const trs::ServedStatistics& each : path) sum += each.copied_bytes;
    return sum;
  }
  /// Writes, reads back, and tells what the guard has copied of the write.
  uint64_t copied_of_write(ClientNode& client, RemoteDevice& device, int fill) {
    const uint64_t before = copied_bytes();
    EXPECT_EQ(write(client, device, 4096, kMovedBytes, fill), Errc::kOk);
    test::Io read(BlockOp::kRead, 4096, kMovedBytes);
    EXPECT_EQ(run(client, device, read), Errc::kOk);
    EXPECT_TRUE(read.all(fill));
    return copied_bytes() - before;
  }
};

TEST_F(MovedData, is_copied_once_into_memory_and_twice_for_a_disk) {
  start_server();
  ClientNode& client = add_client();
  EXPECT_EQ(copied_of_write(client, open(client, "ram"), 0x5a), 0u);
  EXPECT_EQ(copied_of_write(client, open(client), 0x5b), kMovedBytes);
  ASSERT_EQ(server->sessions()[0]->path_guards(), std::vector{trs::ChunkGuard::kCopy});
}

// Which device a request of another reactor is for is known at home only: the guard copies there.
TEST_F(MovedData, arrives_whole_on_several_reactors) {
  client_reactors = 2;
  start_server(2);
  ClientNode& client = add_client();
  RemoteDevice& ram = open(client, "ram");
  for (int fill = 1; fill <= 20; ++fill) {
    const uint64_t copied = copied_of_write(client, ram, fill);
    EXPECT_TRUE(copied == 0 || copied == kMovedBytes) << copied;
  }
}

}  // namespace
}  // namespace braid::bnbd
