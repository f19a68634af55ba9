// Who looks again after a word that a peer of another wire is at: the owner's polls, on their
// thread, and the reactor beside them. The clock is the test's, and nothing is ever readable: an
// atomic that nobody looks after stays where it is.
#include <gtest/gtest.h>

#include <mutex>
#include <semaphore>
#include <thread>

#include "base/test_host.h"
#include "vhca/soft/tcp/end.h"
#include "vhca/soft/tcp/fake_test.h"

namespace braid::vhca::soft::tcp {
namespace {

/// Says who watches what.
class WatchingIo final : public base::TestIoQueue {
 public:
  void watch_readable(const base::Handle&, base::Watch& watch) override { readable = &watch; }
  void unwatch(base::Watch& watch) override {
    if (readable == &watch) readable = nullptr;
  }
  base::Watch* readable = nullptr;
};

class WatchingHost final : public base::TestHost {
 public:
  base::Result<std::unique_ptr<base::IoQueue>> create_io_queue() override {
    auto made = std::make_unique<WatchingIo>();
    io_queue = made.get();
    return std::unique_ptr<base::IoQueue>(std::move(made));
  }
  WatchingIo* io_queue = nullptr;
};

class NoHandle final : public base::Handle {
 public:
  int fd() const override { return -1; }
  base::Result<std::unique_ptr<base::Handle>> duplicate() const override {
    return base::make_error(base::Errc::kNotSupported, "there is none");
  }
};

/// As SoftQp drives its stream: under its lock, from polls and from the reactor.
class Owner final : public LinkEnd {
 public:
  EndInfo info() const override { return {}; }
  base::Status establish(std::unique_ptr<Link> given, uint32_t, const ConnectParameters&) override {
    link = std::move(given);
    return base::ok_status();
  }
  base::Status start_sending() override { return base::ok_status(); }
  Answer respond(const Request&, std::span<const std::byte>, std::span<const std::byte>*) override {
    return {};
  }
  void answered(uint64_t, const Answer&, std::span<const std::byte>) override {}
  void broken() override {}
  void disconnected() override {}
  void wake() override {}
  void move() override {
    {
      const std::lock_guard guard(lock_);
      link->progress(end, /*woken=*/true);
    }
    if (after_move) std::exchange(after_move, nullptr)();
  }
  void poll() {
    const std::lock_guard guard(lock_);
    link->progress(end, /*woken=*/false);
  }
  void arm() {
    const std::lock_guard guard(lock_);
    link->arm(true, false);
  }

  fake::End end;
  std::unique_ptr<Link> link;
  std::function<void()> after_move;  // on the reactor, once

 private:
  std::mutex lock_;
};

class TcpClaimedWordEnd : public ::testing::Test {
 protected:
  static constexpr uint32_t kEpoch = 5;

  TcpClaimedWordEnd() {
    auto made = std::make_unique<fake::Socket>();
    socket = made.get();
    socket->none = std::make_unique<NoHandle>();
    tcp = std::make_shared<TcpEnd>(host, *reactor, std::move(made), std::make_shared<Activity>(),
                                   TcpStream::Options{.epoch = kEpoch, .sends_max = 16});
    owner.end.stream = &tcp->stream();
    EXPECT_TRUE(tcp->establish(owner, 1, ConnectParameters{}, /*initiator=*/false).ok());
  }
  ~TcpClaimedWordEnd() override {
    tcp->disconnect();
    owner.link.reset();
    turn(base::kSecond);
  }

  void feed_atomic(uint64_t sequence) {
    FrameHeader frame;
    frame.magic = kFrameMagic;
    frame.version = kFrameVersion;
    frame.kind = static_cast<uint8_t>(FrameKind::kRequest);
    frame.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    frame.epoch = kEpoch;
    frame.sequence = sequence;
    frame.requested = 8;
    frame.length = bytes_behind(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
    frame.rkey = fake::End::kKey;
    frame.remote_address = reinterpret_cast<uint64_t>(owner.end.memory.data());
    const auto bytes = std::as_bytes(std::span(&frame, 1));
    socket->incoming.insert(socket->incoming.end(), bytes.begin(), bytes.end());
    socket->incoming.insert(socket->incoming.end(), frame.length, std::byte{});
  }
  /// Somebody is at the word until further notice.
  void claim_word() { owner.end.claimed_looks = 1'000'000; }
  void free_word() { owner.end.claimed_looks = 0; }
  uint64_t looks() const { return 1'000'000 - owner.end.claimed_looks; }
  size_t executed() const { return owner.end.executed.size(); }

  void turn(uint64_t after_ns) {
    host.clock_ns += after_ns;
    while (reactor->turn()) {
    }
  }
  void readable() {
    ASSERT_NE(host.io_queue->readable, nullptr);
    base::Watch& watch = *host.io_queue->readable;
    watch.ready(watch);
    turn(0);
  }

  WatchingHost host;
  const std::unique_ptr<base::Reactor> reactor = std::move(*base::Reactor::create(host, {}));
  Owner owner;
  fake::Socket* socket = nullptr;
  std::shared_ptr<TcpEnd> tcp;
};

// The reactor gives up if it finds that nothing waits; the owner's look, which began before and has
// not ended, finds the word claimed still.
TEST_F(TcpClaimedWordEnd, ALookBesideThatOfTheReactorLosesNobody) {
  claim_word();
  feed_atomic(0);
  owner.poll();
  readable();
  std::binary_semaphore in_the_middle(0), go_on(0);
  std::thread polling;
  owner.after_move = [&] {
    host.clock_ns += base::kSecond;
    owner.end.at_claimed_word = [&] {
      in_the_middle.release();
      go_on.acquire();
    };
    polling = std::thread([&] { owner.poll(); });
    in_the_middle.acquire();
  };
  turn(base::kMillisecond);
  ASSERT_TRUE(polling.joinable()) << "the reactor did not look";
  go_on.release();
  polling.join();
  owner.end.at_claimed_word = nullptr;
  owner.arm();
  for (int i = 0; i < 10; ++i) turn(20 * base::kMillisecond);  // nor does who looks at the owner
  free_word();
  for (int i = 0; i < 10 && executed() == 0; ++i) turn(20 * base::kMillisecond);
  EXPECT_EQ(executed(), 1u) << "nobody looks after it";
}

// The reactor's look finds that the owner polls, and leaves the socket to him. He stops, and says
// so to nobody.
TEST_F(TcpClaimedWordEnd, WhatFollowsTheWaitIsReceivedThoughTheOwnerHasStoppedPolling) {
  claim_word();
  feed_atomic(0);
  readable();
  EXPECT_EQ(host.io_queue->readable, nullptr) << "readable for ever";
  owner.poll();
  free_word();
  turn(base::kMillisecond);
  EXPECT_EQ(executed(), 1u);
  for (int i = 0; i < 10; ++i) turn(10 * base::kMillisecond);
  feed_atomic(1);
  readable();
  EXPECT_EQ(executed(), 2u);
}

// A holder that was stopped keeps the word for as long as it pleases.
TEST_F(TcpClaimedWordEnd, NobodyLooksMoreOftenTheLongerItTakes) {
  claim_word();
  feed_atomic(0);
  owner.poll();
  readable();
  ASSERT_TRUE(tcp->stream().hot());
  for (int i = 0; i < 100'000; ++i) {
    owner.poll();
    turn(base::kMicrosecond);
  }
  EXPECT_LT(looks(), 200u) << "in 100 ms";
  const uint64_t before = looks();
  for (int i = 0; i < 100; ++i) turn(10 * base::kMillisecond);
  EXPECT_GE(looks() - before, 40u) << "once in 20 ms";
  EXPECT_LE(looks() - before, 60u);
  // Another one does not find it at once to be as slow as that.
  free_word();
  turn(20 * base::kMillisecond);
  ASSERT_EQ(executed(), 1u);
  claim_word();
  feed_atomic(1);
  readable();
  const uint64_t first = looks();
  for (int i = 0; i < 10; ++i) turn(100 * base::kMicrosecond);
  EXPECT_GE(looks() - first, 3u) << "in 1 ms";
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
