// Sessions between threads of this process, over shared memory: what simulation, which has one
// thread, cannot show. Run it under the thread sanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <tuple>

#include "trs/threads_rig.h"

namespace braid::trs {
namespace {

using base::Errc;
using testing::on;

constexpr size_t kBlockBytes = 8192;
constexpr size_t kLanesPerReactor = 4;
constexpr size_t kBlocks = 64;
/// Blocks in memory; block n is used by one lane at a time.
class StoreUser final : public ServerUser {
 public:
  explicit StoreUser(size_t blocks) : bytes(blocks * kBlockBytes) {}
  void session_opened(ServerSession&) override { ++opened; }
  void session_closed(ServerSession&) override { ++closed; }
  void request(ServerRequest& request) override {
    uint64_t block = 0;
    std::memcpy(&block, request.user_header.data(), sizeof(block));
    std::byte* const at = bytes.data() + block * kBlockBytes;
    if (request.direction == Direction::kWrite) {
      std::memcpy(at, request.data.data(), request.data.size());
    } else {
      std::memcpy(request.data.data(), at, request.data.size());
    }
    request.answer(Errc::kOk);
  }
  std::vector<std::byte> bytes;
  std::atomic<int> opened{0}, closed{0};
};

/// Writes its block and reads it back, `rounds` times; waits for permits with others.
struct SessionLane : PermitWaiter {
  ClientRequest request;
  ClientQueue* queue = nullptr;
  uint64_t block = 0;
  uint64_t rounds = 0;
  uint8_t stamp = 0;
  uint64_t wrong = 0;
  Errc last = Errc::kOk;
  std::atomic<unsigned>* running = nullptr;

  void start() {
    request.user_header = std::as_bytes(std::span(&block, 1));
    request.context = this;
    PermitWaiter::context = this;
    permit_free = [](PermitWaiter& self) { static_cast<SessionLane*>(self.context)->submit(); };
    request.direction = Direction::kWrite;
    request.done = [](ClientRequest& self, Errc status) {
      static_cast<SessionLane*>(self.context)->step(status);
    };
    write();
  }
  void write() {
    std::memset(request.data.address, ++stamp, kBlockBytes);
    submit();
  }
  void submit() {
    request.permit = queue->acquire();
    if (request.permit) {
      queue->submit(request);
    } else {
      queue->wait_for_permit(*this);
    }
  }
  void step(Errc status) {
    last = status;
    if (status == Errc::kCanceled) {
      running->fetch_sub(1);
      return;
    }
    if (status != Errc::kOk) ++wrong;
    if (request.direction == Direction::kWrite) {
      request.direction = Direction::kRead;
      std::memset(request.data.address, 0, kBlockBytes);
      submit();
      return;
    }
    if (std::to_integer<uint8_t>(request.data.address[kBlockBytes - 1]) != stamp) ++wrong;
    if (--rounds == 0) {
      running->fetch_sub(1);
      return;
    }
    request.direction = Direction::kWrite;
    write();
  }
};

/// Reactors of the client, reactors of the server.
class SessionThreads : public ::testing::TestWithParam<std::tuple<size_t, size_t>>,
                       protected testing::ThreadsRig {
 protected:
  SessionThreads() : ThreadsRig(user_, settings()), user_(kBlocks) {}
  ~SessionThreads() override { take_down(); }
  static testing::ThreadsSettings settings() {
    testing::ThreadsSettings settings;
    std::tie(settings.client_reactors, settings.server_reactors) = GetParam();
    settings.with_keys = settings.client_reactors > 1;  // half of the cases
    settings.memory_bytes = kBlocks * kBlockBytes;
    return settings;
  }
  void start_lanes(uint64_t rounds) {
    start_lanes(rounds, std::vector<size_t>(client_threads_.size(), kLanesPerReactor));
  }
  /// So many on each reactor.
  void start_lanes(uint64_t rounds, const std::vector<size_t>& counts) {
    std::vector<size_t> reactor_of;
    for (size_t reactor = 0; reactor < counts.size(); ++reactor) {
      reactor_of.insert(reactor_of.end(), counts[reactor], reactor);
    }
    ASSERT_LE(reactor_of.size(), kBlocks);
    running_ = static_cast<unsigned>(reactor_of.size());
    for (size_t i = 0; i < reactor_of.size(); ++i) {
      auto lane = std::make_unique<SessionLane>();
      lane->queue = &session_->queue(reactor_of[i]);
      lane->block = i;
      lane->rounds = rounds;
      lane->running = &running_;
      lane->request.data = {mr_.get(), memory_->data() + i * kBlockBytes, kBlockBytes};
      lanes_.push_back(std::move(lane));
    }
    for (size_t i = 0; i < lanes_.size(); ++i) {
      client_threads_[reactor_of[i]].post([lane = lanes_[i].get()] { lane->start(); });
    }
  }
  void wait_for_lanes() {
    while (running_.load() > 0) std::this_thread::yield();
    for (auto& lane : lanes_) EXPECT_EQ(lane->wrong, 0u);
  }

  StoreUser user_;
  std::vector<std::unique_ptr<SessionLane>> lanes_;
  std::atomic<unsigned> running_{0};
};

TEST_P(SessionThreads, EveryReactorDoesItsIo) {
  open();
  start_lanes(1000);
  wait_for_lanes();
  close();
  while (user_.closed < 1) std::this_thread::yield();
  EXPECT_EQ(user_.opened, 1);
}

TEST_P(SessionThreads, IoGoesOnOverRestartsOfTheServer) {
  open();
  start_lanes(2000);
  for (int i = 0; i < 3; ++i) {
    const int before = session_user_.reconnects;
    stop_server();
    start_server(port_);
    while (session_user_.reconnects == before) std::this_thread::yield();
  }
  wait_for_lanes();
  close();
}

TEST_P(SessionThreads, CloseUnderLoadEndsEveryRequest) {
  open();
  start_lanes(UINT64_MAX);
  close();
  while (running_.load() > 0) std::this_thread::yield();
  for (auto& lane : lanes_) EXPECT_EQ(lane->last, Errc::kCanceled);
}

TEST_P(SessionThreads, PathsComeAndGoUnderLoad) {
  open(true);
  start_lanes(2000);
  for (int i = 0; i < 6; ++i) {
    const size_t path = i % 2;
    while (!connected(0) || !connected(1)) std::this_thread::yield();
    on(client_threads_[0], [&] { EXPECT_TRUE(session_->disconnect_path(path).ok()); });
    while (connected(path)) std::this_thread::yield();
    on(client_threads_[0], [&] { EXPECT_TRUE(session_->reconnect_path(path).ok()); });
  }
  wait_for_lanes();
  EXPECT_EQ(session_user_.reconnects, 0) << "a path was up all the time";
  close();
}

TEST_P(SessionThreads, PermitsGoWhereTheyAreWanted) {
  open();
  std::vector<size_t> counts(client_threads_.size(), 1);
  counts.back() = 50;
  start_lanes(500, counts);
  wait_for_lanes();
  std::atomic<uint64_t> lent{0}, borrowed{0};
  for (size_t i = 0; i < client_threads_.size(); ++i) {
    on(client_threads_[i], [&, i] {
      lent += session_->queue(i).statistics().permits_lent;
      borrowed += session_->queue(i).statistics().permits_borrowed;
    });
  }
  EXPECT_EQ(lent, borrowed);
  EXPECT_EQ(lent > 0, client_threads_.size() > 1);
  close();
}

/// Heartbeats come often, and whoever is not scheduled has as long as elsewhere. By TCP or not.
class IdleConnectionThreads : public ::testing::TestWithParam<bool>, protected testing::ThreadsRig {
 protected:
  static constexpr uint64_t kOften = 20 * base::kMillisecond;
  IdleConnectionThreads()
      : ThreadsRig(user_, {.memory_bytes = kBlockBytes,
                           .by_tcp = GetParam(),
                           .heartbeat = {.interval_ns = kOften,
                                         .missed_max = testing::kThreadsPatienceNs / kOften}}),
        user_(1) {}
  ~IdleConnectionThreads() override { take_down(); }
  /// Messages of both sides, by cid.
  std::vector<uint64_t> messages() {
    std::vector<uint64_t> counts;
    on(client_threads_[0], [&] {
      const std::vector<PathStatus> paths = session_->paths();
      for (const ConnectionStatistics& each : paths[0].connections)
        counts.push_back(each.messages_sent + each.messages_received);
    });
    return counts;
  }

  StoreUser user_;
};

TEST_P(IdleConnectionThreads, HasNoHeartbeatsInSharedMemoryWhereConnection0Has) {
  open();
  std::vector<uint64_t> before = messages();
  ASSERT_EQ(before.size(), 2u);
  const auto grew = [&](size_t cid, uint64_t by) { return messages().at(cid) >= before[cid] + by; };
  wait_until("no heartbeats by connection 0", [&] { return grew(0, 3); });
  before = messages();  // what came with the opening has come
  wait_until("no heartbeats by connection 0", [&] { return grew(0, 10); });
  if (GetParam()) {
    wait_until("no heartbeats by an idle connection over TCP", [&] { return grew(1, 10); });
  } else {
    EXPECT_FALSE(grew(1, 2));
  }
  EXPECT_EQ(session_user_.reconnects, 0);
  close();
}

INSTANTIATE_TEST_SUITE_P(Wires, IdleConnectionThreads, ::testing::Bool(), [](const auto& each) {
  return std::string(each.param ? "Tcp" : "SharedMemory");
});

INSTANTIATE_TEST_SUITE_P(Reactors, SessionThreads,
                         ::testing::Values(std::tuple(1, 1), std::tuple(2, 2), std::tuple(3, 2),
                                           std::tuple(1, 2)),
                         [](const auto& param) {
                           return "Client" + std::to_string(std::get<0>(param.param)) + "Server" +
                                  std::to_string(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace braid::trs
