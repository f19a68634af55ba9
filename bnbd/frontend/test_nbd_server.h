// The NBD server over socket pairs, with small clients in the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bnbd/frontend/nbd_server.h"
#include "bnbd/frontend/test_kernel_device.h"

namespace braid::bnbd::test {

constexpr uint64_t kServedMiB = 1 << 20;

class NbdServerRig : public testing::Test {
 protected:
  /// `first`: slots that there are at once; 0: all.
  void start(unsigned slots = 8, unsigned connections = 1, unsigned first = 0) {
    std::vector<UniqueFd> server_ends;
    for (unsigned i = 0; i < connections; ++i) {
      int ends[2];
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      clients_.emplace_back(ends[0]);
      server_ends.emplace_back(ends[1]);
    }
    threads_.on_reactor([&] {
      MemoryDeviceOptions options;
      options.size_bytes = device_bytes_;
      options.max_io_bytes = max_io_bytes_;
      device_ = std::make_unique<GateDevice>(
          std::move(create_memory_device(threads_.host(), options)).value());
      auto pool = SlotPool<NbdServer::Slot>::create(
          *device_, first == 0 ? slots : first, slots,
          slot_payload_bytes(device_->info(), NbdServer::kPayloadMax));
      ASSERT_TRUE(pool.ok()) << pool.error().message();
      auto server = NbdServer::create(threads_.reactor(), *device_, options_,
                                      std::move(pool).value(), std::move(server_ends));
      ASSERT_TRUE(server.ok()) << server.error().message();
      server_ = std::move(server).value();
    });
  }
  void TearDown() override {
    threads_.on_reactor([&] {
      server_.reset();
      if (device_) device_->release();
      device_.reset();
    });
  }

  KernelDeviceStatistics statistics() {
    KernelDeviceStatistics now;
    threads_.on_reactor([&] { now = server_->statistics(); });
    return now;
  }
  static NbdRequest request(NbdCommand command, uint64_t offset, uint32_t length,
                            uint64_t cookie = 1, uint16_t flags = 0) {
    NbdRequest wire;
    wire.magic = kNbdRequestMagic;
    wire.flags = flags;
    wire.command = static_cast<uint16_t>(command);
    wire.cookie = cookie;
    wire.offset_bytes = offset;
    wire.length_bytes = length;
    return wire;
  }
  void send_bytes(const void* bytes, size_t length, unsigned client = 0) {
    const char* next = static_cast<const char*>(bytes);
    while (length != 0) {  // a signal may end a send early
      const ssize_t sent = ::send(clients_[client].get(), next, length, MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      next += sent;
      length -= static_cast<size_t>(sent);
    }
  }
  void send(const NbdRequest& wire, unsigned client = 0) {
    send_bytes(&wire, sizeof(wire), client);
  }
  /// The next reply; its error.
  uint32_t receive_reply(uint64_t& cookie, unsigned client = 0) {
    const std::string bytes = receive_data(sizeof(NbdReply), client);
    NbdReply reply;
    EXPECT_EQ(bytes.size(), sizeof(reply));
    std::memcpy(&reply, bytes.data(), sizeof(reply));
    EXPECT_EQ(reply.magic, kNbdReplyMagic);
    cookie = reply.cookie;
    return reply.error;
  }
  uint32_t receive_reply() {
    uint64_t cookie = 0;
    return receive_reply(cookie);
  }
  std::string receive_data(size_t length, unsigned client = 0) {
    std::string data(length, '\0');
    for (size_t got = 0; got < length;) {  // a signal may end a receive early
      const ssize_t more = ::recv(clients_[client].get(), &data[got], length - got, 0);
      if (more <= 0) return std::string(length, '!');
      got += static_cast<size_t>(more);
    }
    return data;
  }
  /// Reads of the first client, more than a socket holds: answers that follow wait behind them.
  void fill_socket() {
    for (uint64_t i = 0; i < 4; ++i) send(request(NbdCommand::kRead, 0, kServedMiB, i));
    ASSERT_TRUE(threads_.wait_until([&] { return device_->count(BlockOp::kRead) == 4; }));
  }
  void empty_socket() {
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(receive_reply(), 0U);
      receive_data(kServedMiB);
    }
  }
  /// Lines are written by a thread of their own.
  bool is_logged(const std::string& text) {
    return threads_.wait_until([&] { return !threads_.log().with(text).empty(); });
  }
  bool closed_by_server(unsigned client = 0) {
    char byte = 0;
    return ::recv(clients_[client].get(), &byte, 1, 0) == 0;
  }

  test::ReactorThread threads_;
  uint64_t device_bytes_ = 8 * kServedMiB;
  uint32_t max_io_bytes_ = kServedMiB;  // a slot has as much
  NbdServerOptions options_{.name = "test"};
  std::vector<UniqueFd> clients_;
  std::unique_ptr<GateDevice> device_;
  NbdServer::Ptr server_;
};

}  // namespace braid::bnbd::test
