// The NBD server with clients of the test's own, at a unix socket: who is slow, silent, gone or
// rude, and what the others notice.
#include "bnbd/nbd_service.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/linux_test_folder.h"
#include "bnbd/frontend/fd_handle.h"
#include "bnbd/frontend/nbd_wire.h"
#include "bnbd/frontend/test_kernel_device.h"

namespace braid::bnbd {
namespace {

using base::be16;
using base::be32;
using base::be64;
using base::Errc;
using test::GateDevice;

constexpr uint64_t kServiceMiB = 1 << 20;

/// A client that blocks.
class Client {
 public:
  explicit Client(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  void close() { socket_.reset(); }
  void finish_sending() { ASSERT_EQ(::shutdown(socket_.get(), SHUT_WR), 0); }
  void send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent =
          ::send(socket_.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return;
      at += static_cast<size_t>(sent);
    }
  }
  /// Shorter: the server has closed.
  std::string receive(size_t length) {
    std::string bytes(length, '\0');
    size_t got = 0;
    while (got < length) {
      const ssize_t more = ::recv(socket_.get(), &bytes[got], length - got, 0);
      if (more <= 0) break;
      got += static_cast<size_t>(more);
    }
    return bytes.substr(0, got);
  }
  bool closed() { return receive(1).empty(); }

  /// Through the handshake; the transmission flags, or nothing where the export was refused.
  std::optional<uint16_t> go(const std::string& name, bool structured = true) {
    EXPECT_EQ(receive(18).size(), 18U);
    send(put(be32(3)));
    if (structured && ask(8, {}).first != 1) ADD_FAILURE() << "no structured replies";
    const std::string data = put(be32(static_cast<uint32_t>(name.size()))) + name + put(be16(0));
    send(option(7, data));
    std::optional<uint16_t> flags;
    for (;;) {
      const auto [type, info] = reply();
      if (type == 1) return flags;
      if (type != 3) {
        refusal_ = info;
        return {};
      }
      if (info.substr(0, 2) == put(be16(0))) flags = get<be16>(info.substr(10));
    }
  }
  const std::string& refusal() const { return refusal_; }

  static std::string wire(NbdCommand command, uint64_t offset, uint32_t length, uint64_t cookie,
                          uint16_t flags = 0) {
    NbdRequest request;
    request.magic = kNbdRequestMagic;
    request.flags = flags;
    request.command = static_cast<uint16_t>(command);
    request.cookie = cookie;
    request.offset_bytes = offset;
    request.length_bytes = length;
    return put(request);
  }
  void request(NbdCommand command, uint64_t offset, uint32_t length, uint64_t cookie,
               uint16_t flags = 0) {
    send(wire(command, offset, length, cookie, flags));
  }
  struct Answer {
    uint64_t cookie = 0;
    uint32_t error = 0;
    std::string data;  // of a read, or words
    bool structured = false;
  };
  Answer answer() {
    Answer got;
    const std::string magic = receive(4);
    if (magic == put(be32(kNbdReplyMagic))) {
      const auto reply = get<NbdReply>(magic + receive(12));
      got.error = reply.error;
      got.cookie = reply.cookie;
      return got;
    }
    EXPECT_EQ(magic, put(be32(kNbdChunkMagic)));
    const auto chunk = get<NbdChunk>(magic + receive(16));
    EXPECT_EQ(uint16_t{chunk.flags}, kNbdChunkDone);
    got.structured = true;
    got.cookie = chunk.cookie;
    const std::string body = receive(chunk.length_bytes);
    if (chunk.type == kNbdChunkOffsetData) {
      got.data = body.substr(8);
    } else {
      EXPECT_EQ(uint16_t{chunk.type}, kNbdChunkError);
      got.error = get<be32>(body);
      got.data = body.substr(6);
      EXPECT_EQ(got.data.size(), get<be16>(body.substr(4)));
    }
    return got;
  }
  std::pair<uint32_t, std::string> ask(uint32_t number, const std::string& data) {
    send(option(number, data));
    return reply();
  }

  template <typename T>
  static std::string put(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }
  template <typename T>
  static T get(const std::string& bytes) {
    T value;
    EXPECT_GE(bytes.size(), sizeof(value));
    std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof(value)));
    return value;
  }
  static std::string option(uint32_t number, const std::string& data) {
    return put(be64(0x49484156454f5054)) + put(be32(number)) +
           put(be32(static_cast<uint32_t>(data.size()))) + data;
  }

 private:
  std::pair<uint32_t, std::string> reply() {
    const std::string head = receive(20);
    if (head.size() < 20) return {0, {}};
    return {get<be32>(head.substr(12)), receive(get<be32>(head.substr(16)))};
  }
  UniqueFd socket_;
  std::string refusal_;
};

class NbdServiceTest : public testing::Test {
 protected:
  /// `before`: on the reactor, when the device is there.
  void start(const std::function<void()>& before = {}) {
    service_options_.unix_path = path_;
    threads_.on_reactor([&] {
      MemoryDeviceOptions memory;
      memory.size_bytes = 8 * kServiceMiB;
      device_ = std::make_unique<GateDevice>(
          std::move(create_memory_device(threads_.host(), memory)).value());
      device_->change_info().write_cache = true;
      if (before) before();
      auto made = NbdService::create(threads_.reactor(), service_options_);
      ASSERT_TRUE(made.ok()) << made.error().message();
      service_ = std::move(made).value();
    });
    auto added = threads_.await([&] { return service_->add_export(*device_, options_); });
    ASSERT_TRUE(added.ok()) << added.error().message();
    export_ = std::move(added).value();
  }
  void TearDown() override {
    threads_.on_reactor([&] {
      export_.reset();
      if (device_) device_->release();
      service_.reset();
      device_.reset();
    });
  }
  Detached detach(DetachMode mode) {
    auto gone = threads_.await([&] { return export_->detach(mode); });
    EXPECT_TRUE(gone.ok());
    return gone.ok() ? *gone : Detached();
  }
  KernelDeviceStatistics statistics() {
    KernelDeviceStatistics now;
    threads_.on_reactor([&] { now = export_->statistics(); });
    return now;
  }
  NbdServiceStatus status() {
    NbdServiceStatus now;
    threads_.on_reactor([&] { now = service_->status(); });
    return now;
  }

  const base::ScratchFolder folder_;
  std::string path_ = folder_ / "s";
  test::ReactorThread threads_;
  NbdServiceOptions service_options_;
  NbdExportOptions options_{.name = "disk"};
  std::unique_ptr<GateDevice> device_;
  std::unique_ptr<NbdService> service_;
  std::unique_ptr<KernelDevice> export_;
  std::atomic<unsigned> regions_{0};  // made by the device, for those who count them
};

TEST_F(NbdServiceTest, ReadsAndErrorsAreChunksWhereTheClientWantsThem) {
  start();
  Client client(path_);
  ASSERT_EQ(client.go("disk"), 0b1'1110'1101);
  client.request(NbdCommand::kWrite, 4096, 512, 1);
  client.send(std::string(512, 'w'));
  EXPECT_FALSE(client.answer().structured) << "success without data is told in a simple reply";
  client.request(NbdCommand::kRead, 4096, 512, 2, kNbdFlagDontFragment);
  const Client::Answer read = client.answer();
  EXPECT_EQ(read.data, std::string(512, 'w'));
  EXPECT_EQ(read.cookie, 2U);
  threads_.on_reactor([&] { device_->fail_with(Errc::kNoSpace); });
  client.request(NbdCommand::kRead, 0, 512, 3);
  const Client::Answer failed = client.answer();
  EXPECT_EQ(failed.error, 28U);
  EXPECT_EQ(failed.data, "the device has no space left");
  threads_.on_reactor([&] { device_->fail_with(Errc::kOk); });
}

TEST_F(NbdServiceTest, AClientWithoutStructuredRepliesGetsSimpleOnes) {
  start();
  Client client(path_);
  ASSERT_EQ(client.go("", /*structured=*/false), 0b1'0110'1101);
  client.request(NbdCommand::kRead, 0, 512, 1);
  EXPECT_FALSE(client.answer().structured);
  EXPECT_EQ(client.receive(512).size(), 512U);
  client.request(NbdCommand::kRead, 0, 512, 2, kNbdFlagDontFragment);
  EXPECT_EQ(client.answer().error, 22U) << "DF was not offered";
}

TEST_F(NbdServiceTest, WhatBreaksTheLimitsIsRefusedInWordsAndTheConnectionGoesOn) {
  start();
  Client client(path_);
  ASSERT_TRUE(client.go("disk"));
  client.request(NbdCommand::kRead, 1, 512, 1);
  EXPECT_EQ(client.answer().data, "not a multiple of the logical block");
  client.request(NbdCommand::kRead, 0, kNbdTransferMax + 512, 2);
  EXPECT_EQ(client.answer().data, "longer than the largest transfer");
  client.request(NbdCommand::kWrite, 0, kNbdTransferMax + 512, 3);
  client.send(std::string(kNbdTransferMax + 512, 'x'));
  EXPECT_EQ(client.answer().error, 22U);
  client.request(NbdCommand::kWriteZeroes, 0, 4096, 4, 1 << 4);
  EXPECT_EQ(client.answer().error, 22U) << "FAST_ZERO was not offered";
  client.request(NbdCommand::kWrite, 8 * kServiceMiB, 512, 5);
  client.send(std::string(512, 'x'));
  EXPECT_EQ(client.answer().error, 28U);
  client.request(NbdCommand::kRead, 0, 512, 6);
  EXPECT_EQ(client.answer().data, std::string(512, '\0'));
}

TEST_F(NbdServiceTest, AReadOnlyExportRefusesChangesThoughItsDeviceTakesThem) {
  options_.read_only = true;
  start();
  Client client(path_);
  ASSERT_EQ(client.go("disk"), 0b1'1000'1111);
  for (const NbdCommand command : {NbdCommand::kTrim, NbdCommand::kWriteZeroes}) {
    client.request(command, 0, 4096, 1);
    EXPECT_EQ(client.answer().error, 1U);
  }
  EXPECT_EQ(device_->count(), 0U);
}

TEST_F(NbdServiceTest, AFlushByOneConnectionReachesTheDeviceAfterTheWritesOfAnother) {
  start();
  Client writer(path_);
  Client flusher(path_);
  ASSERT_TRUE(writer.go("disk"));
  ASSERT_TRUE(flusher.go("disk"));
  writer.request(NbdCommand::kWrite, 0, 512, 1);
  writer.send(std::string(512, 'x'));
  EXPECT_EQ(writer.answer().error, 0U);
  flusher.request(NbdCommand::kFlush, 0, 0, 2);
  EXPECT_EQ(flusher.answer().error, 0U);
  EXPECT_EQ(device_->count(BlockOp::kFlush), 1U);
  flusher.request(NbdCommand::kRead, 0, 512, 3);
  EXPECT_EQ(flusher.answer().data, std::string(512, 'x'));
}

TEST_F(NbdServiceTest, OneThatTakesNoAnswersLeavesTheOthersTheirPart) {
  options_.slots = 16;
  options_.connections_max = 4;
  start();
  Client greedy(path_);
  ASSERT_TRUE(greedy.go("disk"));
  // Each answer is longer than what a socket holds.
  for (uint64_t i = 0; i < 64; ++i) greedy.request(NbdCommand::kRead, 0, kServiceMiB, i);
  const unsigned rest = 16U - 3 * 2;  // the others' are kept for them, though not made yet
  ASSERT_TRUE(threads_.wait_until([&] { return export_->statistics().in_flight == rest; }));
  for (int i = 0; i < 3; ++i) {
    Client other(path_);
    ASSERT_TRUE(other.go("disk"));
    for (uint64_t cookie = 0; cookie < 8; ++cookie) {
      other.request(NbdCommand::kRead, 0, 4096, cookie);
    }
    for (int answers = 0; answers < 8; ++answers) EXPECT_EQ(other.answer().error, 0U);
  }
  EXPECT_EQ(statistics().in_flight, rest) << "two each, and the rest as they come";
  for (int i = 0; i < 64; ++i) EXPECT_EQ(greedy.answer().data.size(), kServiceMiB);
}

TEST_F(NbdServiceTest, AnExportMakesBuffersForAsManyRequestsAsItGets) {
  start([this] { device_->before_region = [this] { ++regions_; }; });
  EXPECT_EQ(regions_, 1U);
  threads_.on_reactor([&] { device_->hold(); });
  Client client(path_);
  ASSERT_TRUE(client.go("disk"));
  for (uint64_t i = 0; i < 64; ++i) client.request(NbdCommand::kRead, 0, 512, i);
  // Each of 32 connections is sure of one slot of the 64.
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 64 - 31; }));
  EXPECT_EQ(regions_, 6U) << "two slots at first, then twice as many each time";
  threads_.on_reactor([&] { device_->release(); });
  for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(client.answer().data.size(), 512U);
}

TEST_F(NbdServiceTest, HalfOpenHandshakesEndAfterTheirTimeAndBeyondTheirNumber) {
  service_options_.half_open_max = 3;
  service_options_.handshake_timeout_ns = 60 * base::kSecond;
  start();
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 3; ++i) {
    silent.push_back(std::make_unique<Client>(path_));
    EXPECT_EQ(silent.back()->receive(18).size(), 18U);
  }
  EXPECT_EQ(status().half_open, 3U);
  Client client(path_);
  EXPECT_TRUE(client.go("disk")) << "the newest has room";
  EXPECT_TRUE(silent[0]->closed()) << "the oldest went for it";
  EXPECT_EQ(status().half_open, 2U);
  silent[1]->close();
  EXPECT_TRUE(threads_.wait_until([&] { return service_->status().half_open == 1; }));
}

TEST_F(NbdServiceTest, WhoIsTooSlowInTheHandshakeIsCutOff) {
  service_options_.handshake_timeout_ns = 20 * base::kMillisecond;
  start();
  Client client(path_);
  EXPECT_EQ(client.receive(18).size(), 18U);
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(status().timed_out, 1U);
}

TEST_F(NbdServiceTest, MoreConnectionsThanThereMayBeAreRefusedInWords) {
  options_.connections_max = 1;
  start();
  Client first(path_);
  ASSERT_TRUE(first.go("disk"));
  Client second(path_);
  EXPECT_FALSE(second.go("disk"));
  EXPECT_EQ(second.refusal(), "\"disk\" has 1 connections, and takes no more");
  first.close();
  // The server hears of it when it hears of it.
  for (bool taken = false; !taken;) taken = Client(path_).go("disk").has_value();
}

/// As what died far away looks until something is sent to it.
TEST_F(NbdServiceTest, WhoSendsNoMoreAndWaitsForTheDeviceKeepsNobodyOut) {
  options_.connections_max = 1;
  start();
  threads_.on_reactor([&] { device_->hold(); });
  Client first(path_);
  ASSERT_TRUE(first.go("disk"));
  first.request(NbdCommand::kRead, 0, 512, 1);
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 1; }));
  Client second(path_);
  EXPECT_FALSE(second.go("disk"));
  first.finish_sending();
  // The server hears of it when it hears of it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool taken = false;
  while (!taken && std::chrono::steady_clock::now() < end) {
    taken = Client(path_).go("disk").has_value();
  }
  EXPECT_TRUE(taken);
  EXPECT_TRUE(first.closed());
  threads_.on_reactor([&] { device_->release(); });
}

TEST_F(NbdServiceTest, OneThatDiesWithRequestsInFlightLeavesNothing) {
  start();
  threads_.on_reactor([&] { device_->hold(); });
  Client client(path_);
  ASSERT_TRUE(client.go("disk"));
  for (uint64_t i = 0; i < 5; ++i) client.request(NbdCommand::kRead, 0, 512, i);
  client.request(NbdCommand::kWrite, 0, kServiceMiB, 6);  // and its payload never comes
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 5; }));
  client.close();
  ASSERT_TRUE(threads_.wait_until([&] { return export_->statistics().in_flight == 5; }));
  threads_.on_reactor([&] { device_->release(); });
  EXPECT_TRUE(threads_.wait_until([&] { return export_->statistics().in_flight == 0; }));
}

TEST_F(NbdServiceTest, ALongRangeOfZeroesIsClearedAPartPerTurn) {
  start();
  threads_.on_reactor([&] { device_->change_info().max_write_zeroes_bytes = 64 * 1024; });
  Client client(path_);
  ASSERT_TRUE(client.go("disk"));
  client.send(Client::wire(NbdCommand::kWriteZeroes, 0, 8 * kServiceMiB, 1) +
              Client::wire(NbdCommand::kRead, 0, 512, 2));
  EXPECT_EQ(client.answer().cookie, 2U) << "a read does not wait for it";
  EXPECT_EQ(client.answer().cookie, 1U);
  EXPECT_EQ(device_->count(BlockOp::kWriteZeroes), 128U);
}

TEST_F(NbdServiceTest, ThePoliteEndAnswersWhatItHasFlushesAndCloses) {
  start();
  threads_.on_reactor([&] { device_->hold(); });
  Client client(path_);
  ASSERT_TRUE(client.go("disk"));
  client.request(NbdCommand::kRead, 0, 512, 1);
  ASSERT_TRUE(threads_.wait_until([&] { return device_->held_count() == 1; }));
  // Behind the begin of the end.
  threads_.reactor().post([&] { threads_.reactor().post([&] { device_->release(); }); });
  EXPECT_EQ(detach(DetachMode::kPolite).lost, "");
  EXPECT_EQ(client.answer().data.size(), 512U);
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(device_->count(BlockOp::kFlush), 1U);
  Client late(path_);
  EXPECT_FALSE(late.go("disk"));
  EXPECT_EQ(late.refusal(), "nothing is exported here just now");
}

/// Its clients come back at once, and may be what writes to the disk that they had.
TEST_F(NbdServiceTest, WhoNamesNoExportGetsNoOtherWhileTheDefaultOneIsNotThere) {
  service_options_.default_export = "vm";
  start();  // and there is "disk" only
  const std::string words =
      "\"vm\", which a client gets that names no export, is not there just now; there is: \"disk\"";
  Client early(path_);
  EXPECT_FALSE(early.go(""));
  EXPECT_EQ(early.refusal(), words);
  const NbdExportOptions vm{.name = "vm"};
  auto added = threads_.await([&] { return service_->add_export(*device_, vm); });
  ASSERT_TRUE(added.ok()) << added.error().message();
  EXPECT_EQ(Client(path_).go(""), 0b1'1110'1101);
  auto gone = threads_.await([&] { return (*added)->detach(DetachMode::kPolite); });
  EXPECT_TRUE(gone.ok());
  threads_.on_reactor([&] { added->reset(); });
  Client late(path_);
  EXPECT_FALSE(late.go(""));
  EXPECT_EQ(late.refusal(), words);
  EXPECT_TRUE(Client(path_).go("disk")) << "which was asked for";
}

TEST_F(NbdServiceTest, AnEndBeginsWithTheDoor) {
  start();
  Client client(path_);
  ASSERT_TRUE(client.go("disk"));
  threads_.on_reactor([&] { service_->set_ending(true); });
  for (const char* name : {"", "disk"}) {
    Client late(path_);
    EXPECT_FALSE(late.go(name));
    EXPECT_EQ(late.refusal(), "this server is ending, and lets nobody in any more");
  }
  client.request(NbdCommand::kRead, 0, 512, 1);
  EXPECT_EQ(client.answer().data.size(), 512U) << "who is in stays";
  threads_.on_reactor([&] { service_->set_ending(false); });
  EXPECT_TRUE(Client(path_).go("disk")) << "it has not come to that";
}

TEST_F(NbdServiceTest, TheEndByForceWaitsForTheDeviceOnly) {
  start();
  Client client(path_);
  ASSERT_TRUE(client.go("disk"));
  for (uint64_t i = 0; i < 16; ++i) client.request(NbdCommand::kRead, 0, kServiceMiB, i);
  ASSERT_TRUE(threads_.wait_until([&] { return export_->statistics().requests == 16; }));
  EXPECT_EQ(detach(DetachMode::kForce).lost, "");
  EXPECT_EQ(device_->count(BlockOp::kFlush), 0U);
}

TEST_F(NbdServiceTest, TheEndByForceTakesARangeBetweenTwoOfItsParts) {
  start();
  threads_.on_reactor([&] { device_->change_info().max_write_zeroes_bytes = 512; });
  Client client(path_);
  ASSERT_TRUE(client.go("disk"));
  client.send(Client::wire(NbdCommand::kWriteZeroes, 0, 8 * kServiceMiB, 1));
  ASSERT_TRUE(threads_.wait_until([&] { return device_->count(BlockOp::kWriteZeroes) > 0; }));
  EXPECT_EQ(detach(DetachMode::kForce).lost, "");
  EXPECT_LT(device_->count(BlockOp::kWriteZeroes), 8 * kServiceMiB / 512)
      << "it had ended by itself";
  EXPECT_EQ(export_->statistics().in_flight, 0U);
}

TEST_F(NbdServiceTest, AFlushThatFailsAtTheEndIsTold) {
  start();
  threads_.on_reactor([&] { device_->fail_with(Errc::kIo); });
  EXPECT_NE(detach(DetachMode::kPolite).lost.find("last flush"), std::string::npos);
}

TEST_F(NbdServiceTest, NamesAreUniqueAndTcpTellsItsPort) {
  service_options_.listen = {{.ip = "127.0.0.1", .port = 0}};
  start();
  auto again = threads_.await([&] { return service_->add_export(*device_, options_); });
  EXPECT_EQ(again.code(), Errc::kExists);
  std::vector<std::string> uris;
  threads_.on_reactor([&] { uris = service_->uris("disk"); });
  ASSERT_EQ(uris.size(), 2U);
  EXPECT_EQ(uris[0], "nbd+unix:///disk?socket=" + path_);
  EXPECT_EQ(uris[1].find("nbd://127.0.0.1:"), 0U);
  EXPECT_EQ(uris[1].find(":0/"), std::string::npos);
}

TEST_F(NbdServiceTest, WhatAUriCannotHoldIsEncoded) {
  path_ = folder_ / "a b#c&d%e?f+g";
  options_.name = "vm/d#1.img";
  service_options_.listen = {{.ip = "127.0.0.1", .port = 0}};
  start();
  std::vector<std::string> uris;
  threads_.on_reactor([&] { uris = service_->uris(options_.name); });
  ASSERT_EQ(uris.size(), 2U);
  EXPECT_EQ(uris[0], "nbd+unix:///vm/d%231.img?socket=" + (folder_ / "a%20b%23c%26d%25e%3Ff%2Bg"));
  EXPECT_TRUE(uris[1].ends_with("/vm/d%231.img")) << uris[1];
  EXPECT_EQ(export_->path(), uris[0]);
  Client client(path_);
  EXPECT_TRUE(client.go(options_.name));
}

}  // namespace
}  // namespace braid::bnbd
