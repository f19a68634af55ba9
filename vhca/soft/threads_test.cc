// Objects without a thread domain may be used from any thread: two threads on each end post and
// poll on the same QP and CQs. Run under the thread sanitizer, this is the test of the locks.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "base/linux_host.h"
#include "vhca/device.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft {
namespace {

constexpr uint64_t kPerThread = 4000;
constexpr int kThreads = 2;
constexpr uint64_t kTotal = kPerThread * kThreads;
constexpr uint32_t kDepth = 64;

struct Side {
  std::unique_ptr<base::Reactor> reactor;
  std::unique_ptr<Device> device;
  std::unique_ptr<base::Segment> memory;
  std::unique_ptr<Pd> pd;
  std::unique_ptr<Mr> mr;
  std::unique_ptr<Cq> cq;
  std::unique_ptr<Qp> qp;
  std::unique_ptr<Connection> connection;
};

class Threads : public ::testing::Test {
 protected:
  Threads() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    host = std::move(*base::create_linux_host(options));
    for (Side& side : sides) make(side);
    connect();
  }

  void make(Side& side) {
    base::Reactor::Options options;
    options.poll_budget_ns = 0;
    side.reactor = std::move(*base::Reactor::create(*host, options));
    side.device = std::move(*create_soft_device(*host, *side.reactor));
    side.memory = std::move(*host->create_segment(1 << 16, "test"));
    side.pd = std::move(*side.device->alloc_pd());
    side.mr = std::move(*side.pd->reg_mr(
        side.memory->data(), side.memory->size(),
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC));
    side.cq = std::move(*side.device->create_cq({.capacity = 4 * kDepth}));
    make_qp(side);
  }
  static void make_qp(Side& side) {
    QpOptions qp;
    qp.send_cq = qp.recv_cq = side.cq.get();
    qp.cap.max_send_wr = qp.cap.max_recv_wr = kDepth;
    side.qp = std::move(*side.pd->create_qp(qp));
  }

  static base::Task<void> accept(Listener& listener, Side& server) {
    auto request = co_await listener.next();
    const ConnectParameters parameters;
    auto connection = co_await (*request)->accept(*server.reactor, *server.qp, parameters);
    server.connection = std::move(*connection);
  }
  static base::Task<void> connect_client(Side& client, Address address) {
    const ConnectParameters parameters;
    auto result = co_await client.device->connect(*client.reactor, *client.qp, address, parameters,
                                                  base::kSecond);
    client.connection = std::move(result->connection);
  }
  void connect() {
    Side& client = sides[0];
    Side& server = sides[1];
    auto listener = std::move(*server.device->listen(*server.reactor, {.ip = "127.0.0.1"}, 1));
    server.reactor->spawn(accept(*listener, server));
    client.reactor->spawn(connect_client(client, listener->address()));
    while (client.connection == nullptr || server.connection == nullptr) {
      client.reactor->turn();
      server.reactor->turn();
    }
  }

  std::unique_ptr<base::Host> host;
  Side sides[2];
};

struct Tally {
  std::atomic<uint64_t> received{0};
  std::atomic<uint64_t> sent{0};
  std::atomic<bool> failed{false};
};

/// One of the threads of an end. Receives go back as they are used up; sends are posted as slots
/// allow.
class Worker {
 public:
  Worker(Side& side, Side& peer, Tally& tally) : side_(side), peer_(peer), tally_(tally) {}

  void run() {
    uint64_t posted = 0;
    while (posted < kPerThread || tally_.sent.load() < kTotal || tally_.received.load() < kTotal) {
      if (posted < kPerThread && post()) ++posted;
      drain();
      if (tally_.failed.load()) return;
    }
  }

 private:
  bool post() {
    Sge sge{reinterpret_cast<uint64_t>(side_.memory->data()), 8, side_.mr->lkey};
    SendWr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(peer_.memory->data());
    wr.wr.rdma.rkey = peer_.mr->rkey;
    const SendWr* bad = nullptr;
    return side_.qp->post_send(&wr, &bad) == 0;
  }
  void drain() {
    Wc wc[8];
    const int count = side_.cq->poll(wc);
    for (int i = 0; i < count; ++i) {
      if (wc[i].status != IBV_WC_SUCCESS) tally_.failed = true;
      if (wc[i].opcode == IBV_WC_RDMA_WRITE) {
        ++tally_.sent;
        continue;
      }
      ++tally_.received;
      RecvWr recv{};
      const RecvWr* bad = nullptr;
      if (side_.qp->post_recv(&recv, &bad) != 0) tally_.failed = true;
    }
    if (count <= 0) std::this_thread::yield();
  }

  Side& side_;
  Side& peer_;
  Tally& tally_;
};

TEST_F(Threads, SeveralOnEachEndPostAndPollOneQpAndLoseNothing) {
  for (Side& side : sides) {
    for (uint32_t i = 0; i < kDepth; ++i) {
      RecvWr recv{};
      const RecvWr* bad = nullptr;
      ASSERT_EQ(side.qp->post_recv(&recv, &bad), 0);
    }
  }
  Tally tallies[2];
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int s = 0; s < 2; ++s) {
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, s] { Worker(sides[s], sides[1 - s], tallies[s]).run(); });
    }
  }
  // Memory comes and goes meanwhile, as control threads do.
  std::thread control([&] {
    while (!stop) {
      const auto mr = sides[0].pd->reg_mr(sides[0].memory->data(), 4096, IBV_ACCESS_LOCAL_WRITE);
      ASSERT_TRUE(mr.ok());
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  control.join();
  for (int s = 0; s < 2; ++s) {
    EXPECT_FALSE(tallies[s].failed.load());
    EXPECT_EQ(tallies[s].received.load(), kTotal);
    EXPECT_EQ(tallies[s].sent.load(), kTotal);
  }
}

/// One of the threads that add to the peer's first word by one QP, one at a time.
class Adder {
 public:
  Adder(Side& side, Side& peer, std::span<std::atomic<bool>> done, size_t index)
      : side_(side), peer_(peer), done_(done), index_(index) {}

  /// How often it added. Stops at what fails, and at an answer that is not above the one before.
  uint64_t run() {
    uint64_t added = 0, least = 0;
    for (; added < kPerThread && add() && answer() >= least; ++added) least = answer() + 1;
    return added;
  }

 private:
  uint64_t& answer() const {
    return reinterpret_cast<uint64_t*>(side_.memory->data())[8 * (1 + index_)];
  }
  bool add() {
    Sge sge{reinterpret_cast<uint64_t>(&answer()), 8, side_.mr->lkey};
    SendWr wr{};
    wr.wr_id = index_;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.atomic = {.remote_addr = reinterpret_cast<uint64_t>(peer_.memory->data()),
                    .compare_add = 1,
                    .swap = 0,
                    .rkey = peer_.mr->rkey};
    const SendWr* bad = nullptr;
    if (side_.qp->post_send(&wr, &bad) != 0) return false;
    // Whoever polls it tells whose it was.
    while (!done_[index_].exchange(false)) {
      Wc wc;
      if (side_.cq->poll({&wc, 1}) != 1) continue;
      if (wc.status != IBV_WC_SUCCESS) return false;
      done_[wc.wr_id] = true;
    }
    return true;
  }

  Side& side_;
  Side& peer_;
  const std::span<std::atomic<bool>> done_;
  const size_t index_;
};

TEST_F(Threads, SeveralAddToAWordByOneQpAndTheOwnerItself) {
  std::array<std::atomic<bool>, kThreads> done{};
  std::array<uint64_t, kThreads> added{};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] { added[t] = Adder(sides[0], sides[1], done, t).run(); });
  }
  auto* const word = reinterpret_cast<uint64_t*>(sides[1].memory->data());
  for (uint64_t i = 0; i < kPerThread; ++i) {
    __atomic_fetch_add(word, uint64_t{1}, __ATOMIC_RELAXED);
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint64_t each : added) EXPECT_EQ(each, kPerThread);
  EXPECT_EQ(__atomic_load_n(word, __ATOMIC_RELAXED), kPerThread * (kThreads + 1));
}

/// Two threads go on together.
void meet(std::atomic<int>& ready) {
  for (++ready; ready < 2;) std::this_thread::yield();
}

TEST_F(Threads, OneResetsAQpWhileTheOtherDisconnectsIt) {
  for (int round = 0; round < 300; ++round) {
    std::atomic<int> ready{0};
    QpAttr reset{};
    reset.qp_state = IBV_QPS_RESET;
    std::thread other([&] {
      meet(ready);
      EXPECT_TRUE(sides[0].qp->modify(reset, IBV_QP_STATE).ok());
    });
    meet(ready);
    sides[0].connection->disconnect();
    other.join();
    EXPECT_EQ(sides[0].qp->query().qp_state, IBV_QPS_RESET);
    for (Side& side : sides) side.connection.reset();
    ASSERT_TRUE(sides[1].qp->modify(reset, IBV_QP_STATE).ok());
    connect();
  }
}

TEST_F(Threads, OneDestroysAQpWhileTheOtherDisconnectsIt) {
  for (int round = 0; round < 300; ++round) {
    std::atomic<int> ready{0};
    RecvWr recv{};
    const RecvWr* bad = nullptr;
    ASSERT_EQ(sides[0].qp->post_recv(&recv, &bad), 0);
    std::thread other([&] {
      meet(ready);
      sides[0].qp.reset();
    });
    meet(ready);
    sides[0].connection->disconnect();
    other.join();
    Wc wc;
    EXPECT_EQ(sides[0].cq->poll({&wc, 1}), 0) << "of a QP that is no more";
    for (Side& side : sides) side.connection.reset();
    for (Side& side : sides) make_qp(side);
    connect();
  }
}

}  // namespace
}  // namespace braid::vhca::soft
