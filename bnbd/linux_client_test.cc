// The server and what Linux's rnbd_client was heard to ask for (tests/golden/rtrs).
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/test_golden.h"
#include "bnbd/raw_peer_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::RawPeerRig;
using trs::Direction;
using wire::AccessMode;
using wire::Operation;

/// An I/O message as Linux said it, without TRS's part behind it and the data before it.
struct Said {
  Direction direction = Direction::kWrite;
  wire::Io io;
};

uint16_t word_at(const std::vector<std::byte>& bytes, size_t at) {
  uint16_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

/// TRS's message is the last: of a write {2, header's length}; of a read {3, header's length,
/// places, flags} and 16 bytes for each place.
Said linux_said(const std::string& path) {
  const std::vector<std::byte> bytes = base::read_golden(path).bytes;
  for (const size_t places : {0u, 1u}) {
    const size_t message = bytes.size() - 8 - 16 * places;
    if (message < sizeof(wire::Io) || message > bytes.size()) continue;
    if (word_at(bytes, message) != 3 || word_at(bytes, message + 2) != sizeof(wire::Io) ||
        word_at(bytes, message + 4) != places)
      continue;
    Said said{.direction = Direction::kRead};
    std::memcpy(&said.io, bytes.data() + message - sizeof said.io, sizeof said.io);
    return said;
  }
  Said said;
  const size_t message = bytes.size() - 4;
  EXPECT_EQ(word_at(bytes, message), 2) << path;
  std::memcpy(&said.io, bytes.data() + message - sizeof said.io, sizeof said.io);
  return said;
}

TEST_F(RawPeerRig, each_io_that_linux_was_heard_to_ask_for_is_done) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  int flushes = 0;
  for (const char* const folder : {"rtrs/always_invalidate_n", "rtrs/always_invalidate_y"}) {
    for (const char* const name : {"io_read", "io_write", "io_flush", "io_discard"}) {
      for (const std::string& path : base::golden_messages(folder, name)) {
        SCOPED_TRACE(path);
        Said said = linux_said(path);
        said.io.device_id = id;
        const Operation operation = wire::operation_of(said.io);
        flushes += static_cast<int>(operation == Operation::kFlush);
        const bool data = operation == Operation::kRead || operation == Operation::kWrite;
        const uint32_t bytes = data ? uint32_t{said.io.length_bytes} : 0;
        EXPECT_EQ(send_io(said.direction, said.io, bytes), Errc::kOk);
      }
    }
  }
  EXPECT_GT(flushes, 0);
}

TEST_F(RawPeerRig, a_flush_as_linux_asks_for_it_makes_what_was_written_durable) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  std::memset(raw->memory->data(), 7, 4096);
  ASSERT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 4096), 4096), Errc::kOk);
  ASSERT_NE(disk->durable()[0], std::byte{7});
  // To Linux a flush is a read of nothing, at no place.
  ASSERT_EQ(send_io(Direction::kRead, io(id, Operation::kFlush, UINT64_MAX, 0), 0), Errc::kOk);
  EXPECT_EQ(disk->durable()[0], std::byte{7});
}

TEST_F(RawPeerRig, preflush_of_linux_clients_is_honoured) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  std::memset(raw->memory->data(), 7, 4096);
  ASSERT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 4096), 4096), Errc::kOk);
  ASSERT_EQ(
      send_io(Direction::kWrite, io(id, Operation::kWrite, 8, 4096, wire::kFlagPreflush), 4096),
      Errc::kOk);
  EXPECT_EQ(disk->durable()[0], std::byte{7});
  ASSERT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 0, wire::kFlagPreflush), 0),
            Errc::kOk)
      << "a write of nothing with a preflush is a flush";
  EXPECT_EQ(disk->durable()[4096], std::byte{7});
}

}  // namespace
}  // namespace braid::bnbd
