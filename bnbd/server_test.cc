// The server against a peer that speaks TRS well and BNBD badly: each refusal, and that it harms
// nobody.
#include "bnbd/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "bnbd/raw_peer_rig.h"
#include "bnbd/server/session.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::RawPeerRig;
using trs::Direction;
using wire::AccessMode;
using wire::Operation;

TEST_F(RawPeerRig, every_malformed_header_is_refused_and_the_session_lives_on) {
  std::vector<std::byte> bytes(300);
  for (size_t length : {0u, 1u, 3u, 4u, 8u, 24u, 32u, 36u, 264u, 300u}) {
    for (unsigned type : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 255u}) {
      std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
      bytes[0] = static_cast<std::byte>(type);
      bytes[1] = std::byte{0};
      const bool is_close = type == 5 && length == 8;
      const bool is_info = type == 0 && length == 36;
      for (Direction direction : {Direction::kRead, Direction::kWrite}) {
        const Errc status = send(direction, std::span(bytes).first(length), 4096);
        const bool may_pass = is_close || (is_info && direction == Direction::kRead);
        EXPECT_EQ(status == Errc::kOk, may_pass) << "type " << type << ", length " << length;
      }
    }
  }
  EXPECT_GT(server->statistics().requests_refused, 100u);
  EXPECT_EQ(disconnects, 0);
}

TEST_F(RawPeerRig, the_smaller_version_is_answered) {
  for (const auto& [offered, answered] : {std::pair{1, 1}, {2, 2}, {3, 2}, {255, 2}}) {
    wire::SessionInfo info;
    info.version = static_cast<uint8_t>(offered);
    ASSERT_EQ(admin(Direction::kRead, wire::bytes_of(info), 36), Errc::kOk);
    const auto* const bytes = raw->memory->data();
    EXPECT_EQ(bytes[0], std::byte{1});
    EXPECT_EQ(bytes[4], static_cast<std::byte>(answered)) << "to " << offered;
  }
}

TEST_F(RawPeerRig, an_unknown_device_id_is_not_connected) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  for (uint32_t wrong : {uint32_t{0}, id + 1, ~id}) {
    EXPECT_EQ(send_io(Direction::kRead, io(wrong, Operation::kRead, 0, 4096), 4096),
              Errc::kDisconnected);
  }
  EXPECT_EQ(base::errno_from_errc(Errc::kDisconnected), ENOTCONN);
}

TEST_F(RawPeerRig, a_closed_device_id_is_not_connected_any_more) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  ASSERT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, 0, 4096), 4096), Errc::kOk);
  wire::Close close;
  close.header.type = uint16_t{5};
  close.device_id = id;
  EXPECT_EQ(admin(Direction::kWrite, wire::bytes_of(close), 0), Errc::kOk);
  EXPECT_EQ(admin(Direction::kWrite, wire::bytes_of(close), 0), Errc::kOk) << "twice is no error";
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, 0, 4096), 4096),
            Errc::kDisconnected);
  EXPECT_NE(open_plain("disk.img", AccessMode::kReadWrite), id);
}

TEST_F(RawPeerRig, lengths_are_judged_by_the_data_and_not_by_the_header) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, 0, 65536), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, 0, 512), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 65536), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 4096), 0), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kDiscard, 0, 4096), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 0), 0), Errc::kInvalid);
  EXPECT_EQ(disk->counters().operations, 0u) << "none reached the disk";
}

TEST_F(RawPeerRig, operations_against_their_direction_are_refused) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kRead, 0, 4096), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kWrite, 0, 4096), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kFlush, 0, 0), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kSecureErase, 0, 4096), 0),
            Errc::kNotSupported);
}

TEST_F(RawPeerRig, ranges_past_the_end_are_refused) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  const uint64_t sectors = (4 << 20) / 512;
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, sectors - 8, 4096), 4096),
            Errc::kOk);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, sectors - 7, 4096), 4096),
            Errc::kOutOfRange);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kDiscard, sectors - 1, 4096), 0),
            Errc::kOutOfRange);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, UINT64_MAX / 512, 4096), 4096),
            Errc::kOutOfRange);
}

TEST_F(RawPeerRig, a_device_opened_for_reading_takes_no_changes) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadOnly);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 4096), 4096), Errc::kReadOnly);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kDiscard, 0, 4096), 0), Errc::kReadOnly);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kWriteZeroes, 0, 4096), 0),
            Errc::kReadOnly);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kFlush, 0, 0), 0), Errc::kOk);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, 0, 4096), 4096), Errc::kOk);
}

TEST_F(RawPeerRig, a_short_answer_space_gets_the_plain_answer_and_errno_refusals) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  EXPECT_EQ(open_plain("disk.img", AccessMode::kReadWrite), id) << "again: the same id";
  auto message = wire::make_open("nothing", AccessMode::kReadWrite);
  EXPECT_EQ(admin(Direction::kRead, wire::bytes_of(*message), 56), Errc::kNotFound);
  EXPECT_EQ(admin(Direction::kRead, wire::bytes_of(*message), 55), Errc::kInvalid);
  EXPECT_EQ(admin(Direction::kWrite, wire::bytes_of(*message), 56), Errc::kInvalid);
}

TEST_F(RawPeerRig, answers_are_zero_behind_their_end) {
  const uint32_t id = open_plain("ram", AccessMode::kReadWrite);
  std::memset(raw->memory->data(), 0xee, 64 << 10);
  // Leaves bytes in every chunk that the answer could come from.
  for (uint32_t i = 0; i < 40; ++i) {
    ASSERT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 4096), 4096), Errc::kOk);
  }
  wire::SessionInfo info;
  EXPECT_EQ(admin(Direction::kRead, wire::bytes_of(info), 4096), Errc::kOk);
  for (size_t i = 36; i < 4096; ++i) ASSERT_EQ(raw->memory->data()[i], std::byte{0}) << i;
}

TEST_F(RawPeerRig, a_flood_of_bad_requests_does_not_flood_the_log) {
  const std::byte bad[4] = {std::byte{9}};
  for (int i = 0; i < 200; ++i) EXPECT_EQ(send(Direction::kWrite, bad, 0), Errc::kInvalid);
  EXPECT_EQ(server->statistics().requests_refused, 200u);
  EXPECT_GT(log->lines, 0u);
  EXPECT_LT(log->lines, 40u);
}

TEST_F(RawPeerRig, who_opens_and_closes_for_ever_does_not_flood_the_log) {
  for (int i = 0; i < 1000; ++i) {
    wire::Close close;
    close.header.type = uint16_t{5};
    close.device_id = open_plain("disk.img", AccessMode::kReadWrite);
    ASSERT_EQ(admin(Direction::kWrite, wire::bytes_of(close), 0), Errc::kOk);
  }
  EXPECT_GT(log->lines, 200u) << "a burst is told";
  EXPECT_LT(log->lines, 600u) << "and not four lines of each";
}

/// A request of which the client takes no notice any more.
struct Forgotten {
  wire::Io message;
  trs::ClientRequest request;
};

TEST_F(RawPeerRig, a_close_is_answered_though_the_disk_hangs_and_the_device_stays_held_until_then) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  disk->faults.stalled_until_ns = world.now_ns() + 30 * base::kSecond;
  Forgotten write;
  write.message = io(id, Operation::kWrite, 0, 4096);
  write.request.direction = Direction::kWrite;
  write.request.user_header = wire::bytes_of(write.message);
  write.request.data = buffer(4096);
  bool ended = false;
  write.request.context = &ended;
  write.request.done = [](trs::ClientRequest& r, Errc) { *static_cast<bool*>(r.context) = true; };
  raw->home().post([&] {
    write.request.permit = raw->session->queue(0).acquire();
    raw->session->queue(0).submit(write.request);
  });
  ASSERT_TRUE(until([&] { return disk->counters().stalled == 1; }));
  wire::Close close;
  close.header.type = uint16_t{5};
  close.device_id = id;
  EXPECT_EQ(admin(Direction::kWrite, wire::bytes_of(close), 0), Errc::kOk);
  EXPECT_FALSE(ended);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, 0, 4096), 4096),
            Errc::kDisconnected);
  ClientNode& second = add_client("second");
  EXPECT_EQ(try_open(second, {.name = "disk.img"}).code(), Errc::kBusy);
  ASSERT_TRUE(until([&] { return ended; }));
  EXPECT_TRUE(try_open(second, {.name = "disk.img"}).ok());
}

TEST_F(RawPeerRig, opens_beside_each_other_do_not_pass_the_limit_of_a_session) {
  constexpr size_t kMost = server::kDevicesMax;
  constexpr size_t kAtOnce = 8;
  std::vector<wire::Open> opens;
  for (size_t i = 0; i < kMost - 2 + kAtOnce; ++i) {
    const std::string name = "disk" + std::to_string(i);
    server_machine.add_disk("/exports/" + name, {.size_bytes = 4096});
    opens.push_back(wire::make_open(name, AccessMode::kReadOnly).value());
  }
  for (size_t i = 0; i < kMost - 2; ++i) {
    ASSERT_EQ(admin(Direction::kRead, wire::bytes_of(opens[i]), 56), Errc::kOk);
  }
  std::vector<Errc> ends;
  std::array<trs::ClientRequest, kAtOnce> requests;
  for (size_t i = 0; i < kAtOnce; ++i) {
    requests[i].user_header = wire::bytes_of(opens[kMost - 2 + i]);
    requests[i].data = buffer(56);
    requests[i].context = &ends;
    requests[i].done = [](trs::ClientRequest& r, Errc s) {
      static_cast<std::vector<Errc>*>(r.context)->push_back(s);
    };
  }
  raw->home().post([&] {
    for (trs::ClientRequest& request : requests) {
      request.permit = raw->session->queue(0).acquire();
      raw->session->queue(0).submit(request);
    }
  });
  ASSERT_TRUE(until([&] { return ends.size() == kAtOnce; }));
  EXPECT_EQ(std::count(ends.begin(), ends.end(), Errc::kOk), 2);
  EXPECT_EQ(std::count(ends.begin(), ends.end(), Errc::kNoMemory), kAtOnce - 2);
}

TEST_F(RawPeerRig, an_open_without_a_name_is_refused) {
  auto message = wire::make_open("x", AccessMode::kReadOnly);
  message->name[0] = '\0';
  EXPECT_EQ(admin(Direction::kRead, wire::bytes_of(*message), 56), Errc::kInvalid);
}

class TwoReactors : public RawPeerRig {
 protected:
  TwoReactors() : RawPeerRig(2) {}
};

/// The raw peer's session is the first; the next two begin at the one reactor and at the other.
TEST_F(TwoReactors, requests_on_another_reactor_are_handed_over_and_back) {
  for (const size_t reactor : {0, 1}) {
    ClientNode& client = add_client(reactor == 0 ? "home" : "away");
    const std::vector<uint64_t> before = server->statistics().requests;
    ASSERT_EQ(before.size(), 2u);
    RemoteDevice& device = open(client);
    RemoteDevice& ram = open(client, "ram");
    for (uint64_t i = 0; i < 50; ++i) {
      EXPECT_EQ(write(client, device, i * 4096, 4096, static_cast<int>(i)), Errc::kOk);
      EXPECT_EQ(write(client, ram, i * 4096, 4096, static_cast<int>(i)), Errc::kOk);
    }
    for (uint64_t i = 0; i < 50; ++i) {
      EXPECT_TRUE(reads_as(client, device, i * 4096, 4096, static_cast<int>(i)));
      EXPECT_TRUE(reads_as(client, ram, i * 4096, 4096, static_cast<int>(i)));
    }
    const ExportServerStatistics after = server->statistics();
    EXPECT_GE(after.requests[reactor] - before[reactor], 200u);
    EXPECT_EQ(after.requests[1] - before[1], reactor == 1 ? 200u : 0u) << "control is the home's";
    EXPECT_EQ(after.handed_over, after.requests[1]);
    await(client, client.session->close());
  }
}

TEST(ExportServer, refuses_export_names_that_cannot_be) {
  base::sim::SimWorld world(test::calm());
  base::sim::SimMachine& machine = world.add_machine("m");
  world.fabric().add_port(machine, test::kServerIp);
  base::sim::SimHost& host = machine.start_process("p");
  test::Node node(host, test::kServerIp, 1);
  const auto create = [&](std::vector<NamedExport> named) {
    ExportServerOptions options;
    options.named = std::move(named);
    options.transport.listen = {test::kServerIp, test::kPort};
    options.transport.reactors = node.reactor_list();
    return ExportServer::create(*node.device, std::move(options)).code();
  };
  using Kind = NamedExport::Kind;
  EXPECT_EQ(create({{Kind::kMemory, "", 4096}}), Errc::kInvalid);
  EXPECT_EQ(create({{Kind::kMemory, std::string(255, 'x'), 4096}}), Errc::kInvalid);
  EXPECT_EQ(create({{Kind::kMemory, "a", 4096}, {Kind::kNull, "./a", 4096}}), Errc::kInvalid);
  EXPECT_EQ(create({{Kind::kMemory, "a", 0}}), Errc::kInvalid);
  EXPECT_EQ(create({{Kind::kNull, "a", 100}}), Errc::kInvalid);
}

}  // namespace
}  // namespace braid::bnbd
