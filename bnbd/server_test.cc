// The server against a peer that speaks TRS well and BNBD badly: each refusal, and that it harms
// nobody.
#include "bnbd/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using trs::Direction;

class RawPeer : public test::ServedRig, private trs::SessionUser {
 protected:
  explicit RawPeer(size_t reactors = 1) : ServedRig(reactors) {
    base::sim::SimMachine& machine = world.add_machine("raw");
    world.fabric().add_port(machine, "10.0.2.1");
    base::sim::SimHost& host = machine.start_process("raw");
    auto node = std::make_unique<RawNode>(host, "10.0.2.1", 1);
    raw = node.get();
    host.run(std::move(node));
    raw->domain = std::move(trs::Domain::create(*raw->device)).value();
    raw->memory = std::move(host.create_segment(64 << 10, "test")).value();
    raw->mr =
        std::move(raw->domain->register_memory(raw->memory->data(), 64 << 10,
                                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE))
            .value();
    trs::ClientOptions options;
    options.session_name = "raw";
    options.server = {test::kServerIp, test::kPort};
    options.reactors = raw->reactor_list();
    trs::SessionUser& user = *this;
    auto opened = await(*raw, trs::ClientSession::open(*raw->domain, std::move(options), user));
    EXPECT_TRUE(opened.ok());
    raw->session = std::move(opened).value();
  }

  struct RawNode : test::Node {
    using Node::Node;
    std::unique_ptr<trs::Domain> domain;
    std::unique_ptr<base::Segment> memory;
    std::unique_ptr<vhca::Mr> mr;
    std::unique_ptr<trs::ClientSession> session;
  };
  base::Task<base::Status> reconnected() override { co_return base::ok_status(); }
  void disconnected(const base::Error&) override { ++disconnects; }

  trs::DataBuffer buffer(uint32_t length) {
    return {length == 0 ? nullptr : raw->mr.get(), raw->memory->data(), length};
  }
  /// A request on an I/O connection: any bytes as user header, any length of data.
  Errc send(Direction direction, std::span<const std::byte> header, uint32_t length) {
    trs::ClientRequest request;
    std::optional<Errc> status;
    request.direction = direction;
    request.user_header = header;
    request.data = buffer(length);
    request.context = &status;
    request.done = [](trs::ClientRequest& r, Errc s) {
      static_cast<std::optional<Errc>*>(r.context)->emplace(s);
    };
    raw->home().post([&] {
      request.permit = raw->session->queue(0).acquire();
      raw->session->queue(0).submit(request);
    });
    EXPECT_TRUE(until([&] { return status.has_value(); }));
    return *status;
  }
  Errc admin(Direction direction, std::span<const std::byte> header, uint32_t length) {
    trs::AdminRequest request;
    request.what = "raw request";
    request.direction = direction;
    request.user_header = header;
    request.data = {raw->memory->data(), length};
    auto answer = await(*raw, raw->session->admin(request));
    return answer.ok() ? *answer : answer.code();
  }
  wire::Io io(uint32_t id, wire::Operation operation, uint64_t sector, uint32_t length,
              uint32_t flags = 0) {
    wire::Io message;
    message.header.type = uint16_t{4};
    message.device_id = id;
    message.sector = sector;
    message.operation_flags = static_cast<uint32_t>(operation) | flags;
    message.length_bytes = length;
    return message;
  }
  Errc send_io(Direction direction, const wire::Io& message, uint32_t length) {
    return send(direction, wire::bytes_of(message), length);
  }
  /// Opens as a peer without Braid's extension would.
  uint32_t open_plain(const std::string& name, wire::AccessMode mode) {
    auto message = wire::make_open(name, mode);
    EXPECT_EQ(admin(Direction::kRead, wire::bytes_of(*message), 56), Errc::kOk);
    auto opened = wire::parse_open_answer(std::span(raw->memory->data(), 56));
    EXPECT_TRUE(opened.ok());
    return opened.ok() ? opened->device_id : 0;
  }

  RawNode* raw = nullptr;
  int disconnects = 0;
};

using wire::AccessMode;
using wire::Operation;

TEST_F(RawPeer, every_malformed_header_is_refused_and_the_session_lives_on) {
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

TEST_F(RawPeer, the_smaller_version_is_answered) {
  for (const auto& [offered, answered] : {std::pair{1, 1}, {2, 2}, {3, 2}, {255, 2}}) {
    wire::SessionInfo info;
    info.version = static_cast<uint8_t>(offered);
    ASSERT_EQ(admin(Direction::kRead, wire::bytes_of(info), 36), Errc::kOk);
    const auto* const bytes = raw->memory->data();
    EXPECT_EQ(bytes[0], std::byte{1});
    EXPECT_EQ(bytes[4], static_cast<std::byte>(answered)) << "to " << offered;
  }
}

TEST_F(RawPeer, an_unknown_device_id_is_not_connected) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  for (uint32_t wrong : {uint32_t{0}, id + 1, ~id}) {
    EXPECT_EQ(send_io(Direction::kRead, io(wrong, Operation::kRead, 0, 4096), 4096),
              Errc::kDisconnected);
  }
  EXPECT_EQ(base::errno_from_errc(Errc::kDisconnected), ENOTCONN);
}

TEST_F(RawPeer, a_closed_device_id_is_not_connected_any_more) {
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

TEST_F(RawPeer, lengths_are_judged_by_the_data_and_not_by_the_header) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, 0, 65536), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, 0, 512), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 65536), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 4096), 0), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kDiscard, 0, 4096), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 0), 0), Errc::kInvalid);
  EXPECT_EQ(disk->counters().operations, 0u) << "none reached the disk";
}

TEST_F(RawPeer, operations_against_their_direction_are_refused) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kRead, 0, 4096), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kWrite, 0, 4096), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kFlush, 0, 0), 4096), Errc::kInvalid);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kSecureErase, 0, 4096), 0),
            Errc::kNotSupported);
}

TEST_F(RawPeer, ranges_past_the_end_are_refused) {
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

TEST_F(RawPeer, a_device_opened_for_reading_takes_no_changes) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadOnly);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kWrite, 0, 4096), 4096), Errc::kReadOnly);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kDiscard, 0, 4096), 0), Errc::kReadOnly);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kWriteZeroes, 0, 4096), 0),
            Errc::kReadOnly);
  EXPECT_EQ(send_io(Direction::kWrite, io(id, Operation::kFlush, 0, 0), 0), Errc::kOk);
  EXPECT_EQ(send_io(Direction::kRead, io(id, Operation::kRead, 0, 4096), 4096), Errc::kOk);
}

TEST_F(RawPeer, preflush_of_linux_clients_is_honoured) {
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

TEST_F(RawPeer, a_short_answer_space_gets_the_plain_answer_and_errno_refusals) {
  const uint32_t id = open_plain("disk.img", AccessMode::kReadWrite);
  EXPECT_EQ(open_plain("disk.img", AccessMode::kReadWrite), id) << "again: the same id";
  auto message = wire::make_open("nothing", AccessMode::kReadWrite);
  EXPECT_EQ(admin(Direction::kRead, wire::bytes_of(*message), 56), Errc::kNotFound);
  EXPECT_EQ(admin(Direction::kRead, wire::bytes_of(*message), 55), Errc::kInvalid);
  EXPECT_EQ(admin(Direction::kWrite, wire::bytes_of(*message), 56), Errc::kInvalid);
}

TEST_F(RawPeer, answers_are_zero_behind_their_end) {
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

TEST_F(RawPeer, a_flood_of_bad_requests_does_not_flood_the_log) {
  const std::byte bad[4] = {std::byte{9}};
  for (int i = 0; i < 200; ++i) EXPECT_EQ(send(Direction::kWrite, bad, 0), Errc::kInvalid);
  EXPECT_EQ(server->statistics().requests_refused, 200u);
}

/// A request of which the client takes no notice any more.
struct Forgotten {
  wire::Io message;
  trs::ClientRequest request;
};

TEST_F(RawPeer, a_close_is_answered_though_the_disk_hangs_and_the_device_stays_held_until_then) {
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

TEST_F(RawPeer, opens_beside_each_other_do_not_pass_the_limit_of_a_session) {
  constexpr size_t kMost = 256;
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

TEST_F(RawPeer, an_open_without_a_name_is_refused) {
  auto message = wire::make_open("x", AccessMode::kReadOnly);
  message->name[0] = '\0';
  EXPECT_EQ(admin(Direction::kRead, wire::bytes_of(*message), 56), Errc::kInvalid);
}

class TwoReactors : public RawPeer {
 protected:
  TwoReactors() : RawPeer(2) {}
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
