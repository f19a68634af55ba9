// Objects without a thread domain may be used from any thread: two threads on each end post and
// poll on the same QP and CQs, while a third turns the reactors. Run under the thread sanitizer,
// this is the test of the locks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <iterator>
#include <span>
#include <thread>
#include <vector>

#include "base/linux_host.h"
#include "vhca/device.h"
#include "vhca/port_faults.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft {
namespace {

constexpr uint64_t kPerThread = 4000;
constexpr int kThreads = 2;
constexpr uint64_t kTotal = kPerThread * kThreads;
constexpr uint32_t kDepth = 64;
constexpr uint32_t kMemoryBytes = 1 << 18;

struct Wired {
  const char* name;
  base::Result<std::unique_ptr<Device>> (*create)(base::Host&, base::Reactor&);
};
constexpr Wired kWires[] = {
    {"inhost",
     [](base::Host& host, base::Reactor& reactor) { return create_soft_device(host, reactor); }},
    {"tcp", [](base::Host& host, base::Reactor& reactor) {
       return create_tcp_device(host, reactor, {.ip = "127.0.0.1", .port_faults = true});
     }}};

struct Side {
  std::unique_ptr<base::Reactor> reactor;
  std::unique_ptr<Device> device;
  std::unique_ptr<base::Segment> memory;
  std::unique_ptr<Pd> pd;
  std::unique_ptr<Mr> mr;
  std::unique_ptr<Cq> cq;
  std::unique_ptr<Srq> srq;  // of the QP, if there is one
  std::unique_ptr<Qp> qp;
  std::unique_ptr<Connection> connection;
};

class Threads : public ::testing::TestWithParam<Wired> {
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
    side.device = std::move(*GetParam().create(*host, *side.reactor));
    side.memory = std::move(*host->create_segment(kMemoryBytes, "test"));
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
    qp.srq = side.srq.get();
    qp.cap.max_send_wr = qp.cap.max_recv_wr = kDepth;
    side.qp = std::move(*side.pd->create_qp(qp));
  }

  static base::Task<void> accept(Listener& listener, Side& server, ConnectParameters parameters) {
    auto request = co_await listener.next();
    auto connection = co_await (*request)->accept(*server.reactor, *server.qp, parameters);
    server.connection = std::move(*connection);
  }
  static base::Task<void> connect_client(Side& client, Address address,
                                         ConnectParameters parameters) {
    auto result = co_await client.device->connect(*client.reactor, *client.qp, address, parameters,
                                                  base::kSecond);
    client.connection = std::move(result->connection);
  }
  void connect() {
    Side& client = sides[0];
    Side& server = sides[1];
    auto listener = std::move(*server.device->listen(*server.reactor, {.ip = "127.0.0.1"}, 1));
    server.reactor->spawn(accept(*listener, server, parameters));
    client.reactor->spawn(connect_client(client, listener->address(), parameters));
    while (client.connection == nullptr || server.connection == nullptr) {
      client.reactor->turn();
      server.reactor->turn();
    }
  }

  /// Runs them each in a thread, and the reactors in this one, to their end.
  void run_all(const std::vector<std::function<void()>>& bodies) {
    std::atomic<size_t> ended{0};
    std::vector<std::thread> threads;
    for (const auto& body : bodies) {
      threads.emplace_back([&] {
        body();
        ++ended;
      });
    }
    while (ended.load() < bodies.size()) turn();
    for (std::thread& thread : threads) thread.join();
  }
  void turn() {
    bool worked = false;
    for (Side& side : sides) worked |= side.reactor->turn();
    if (!worked) std::this_thread::yield();
  }
  /// Both QPs, whatever became of them, are connected anew.
  void connect_again() {
    QpAttr reset{};
    reset.qp_state = IBV_QPS_RESET;
    for (Side& side : sides) side.connection.reset();
    for (Side& side : sides) ASSERT_TRUE(side.qp->modify(reset, IBV_QP_STATE).ok());
    connect();
  }
  int post(Side& from, ibv_wr_opcode opcode, uint32_t length) {
    Sge sge{reinterpret_cast<uint64_t>(from.memory->data()), length, from.mr->lkey};
    SendWr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    Side& to = &from == &sides[0] ? sides[1] : sides[0];
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to.memory->data());
    wr.wr.rdma.rkey = to.mr->rkey;
    const SendWr* bad = nullptr;
    return from.qp->post_send(&wr, &bad);
  }

  std::unique_ptr<base::Host> host;
  Side sides[2];
  ConnectParameters parameters;
};

INSTANTIATE_TEST_SUITE_P(Wires, Threads, ::testing::ValuesIn(kWires),
                         [](const auto& each) { return each.param.name; });

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
      const int failed = side_.srq != nullptr ? side_.srq->post_recv(&recv, &bad)
                                              : side_.qp->post_recv(&recv, &bad);
      if (failed != 0) tally_.failed = true;
    }
    if (count <= 0) std::this_thread::yield();
  }

  Side& side_;
  Side& peer_;
  Tally& tally_;
};

class ThreadsExchange : public Threads {
 protected:
  /// `meanwhile` is called again and again, by a thread of its own.
  void exchange(const std::function<void()>& meanwhile = {}) {
    for (Side& side : sides) {
      for (uint32_t i = 0; i < kDepth; ++i) {
        RecvWr recv{};
        const RecvWr* bad = nullptr;
        ASSERT_EQ(side.srq != nullptr ? side.srq->post_recv(&recv, &bad)
                                      : side.qp->post_recv(&recv, &bad),
                  0);
      }
    }
    Tally tallies[2];
    std::atomic<size_t> left{2 * kThreads};
    std::vector<std::function<void()>> bodies;
    for (int i = 0; i < 2 * kThreads; ++i) {
      bodies.emplace_back([&, s = i % 2] {
        Worker(sides[s], sides[1 - s], tallies[s]).run();
        --left;
      });
    }
    // Memory comes and goes meanwhile, as control threads do.
    bodies.emplace_back([&] {
      while (left.load() > 0) {
        const auto mr = sides[0].pd->reg_mr(sides[0].memory->data(), 4096, IBV_ACCESS_LOCAL_WRITE);
        ASSERT_TRUE(mr.ok());
        if (meanwhile) meanwhile();
      }
    });
    run_all(bodies);
    for (int s = 0; s < 2; ++s) {
      EXPECT_FALSE(tallies[s].failed.load());
      EXPECT_EQ(tallies[s].received.load(), kTotal);
      EXPECT_EQ(tallies[s].sent.load(), kTotal);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Wires, ThreadsExchange, ::testing::ValuesIn(kWires),
                         [](const auto& each) { return each.param.name; });

TEST_P(ThreadsExchange, SeveralOnEachEndPostAndPollOneQpAndLoseNothing) {
  exchange();
}

TEST_P(ThreadsExchange, SeveralPostToOneSrqAndLoseNothing) {
  for (Side& side : sides) {
    side.connection.reset();
    side.qp.reset();
    side.srq = std::move(*side.pd->create_srq({.max_wr = 2 * kDepth, .max_sge = 1}));
    make_qp(side);
  }
  connect();
  exchange();
}

TEST_P(ThreadsExchange, FaultsOfPortsThatComeAndGoLoseNothing) {
  parameters.ack_timeout = 24;  // eight minutes, however long a fault's thread is kept waiting
  const PortFaults faults[] = {{.lose_sent = true},
                               {.lose_received = true},
                               {.lose_answers = true},
                               {.down = true},
                               {.duplicate = true},
                               {.delay_ns = 20 * base::kMicrosecond},
                               {.lose_answers = true, .delay_ns = base::kMicrosecond}};
  size_t round = 0;
  const auto fail_and_mend = [&] {
    Device& device = *sides[round % 2].device;
    const PortFaults& fault = faults[round / 2 % std::size(faults)];
    const base::Status set = set_port_faults(device, 1, fault);
    EXPECT_TRUE(set.ok() || fault.duplicate);  // which not every wire has
    for (int i = 0; i < 5; ++i) std::this_thread::yield();
    EXPECT_TRUE(set_port_faults(device, 1, {}).ok());
    for (int i = 0; i < 5; ++i) std::this_thread::yield();
    ++round;
  };
  // Until every fault was there on each side.
  while (round < 2 * std::size(faults)) {
    connect_again();
    exchange(fail_and_mend);
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
      if (side_.cq->poll({&wc, 1}) != 1) {
        std::this_thread::yield();
        continue;
      }
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

TEST_P(Threads, SeveralAddToAWordByOneQpAndTheOwnerItself) {
  std::array<std::atomic<bool>, kThreads> done{};
  std::array<uint64_t, kThreads> added{};
  auto* const word = reinterpret_cast<uint64_t*>(sides[1].memory->data());
  std::vector<std::function<void()>> bodies;
  for (size_t t = 0; t < kThreads; ++t) {
    bodies.emplace_back([&, t] { added[t] = Adder(sides[0], sides[1], done, t).run(); });
  }
  bodies.emplace_back([&] {
    for (uint64_t i = 0; i < kPerThread; ++i) {
      __atomic_fetch_add(word, uint64_t{1}, __ATOMIC_RELAXED);
    }
  });
  run_all(bodies);
  for (const uint64_t each : added) EXPECT_EQ(each, kPerThread);
  EXPECT_EQ(__atomic_load_n(word, __ATOMIC_RELAXED), kPerThread * (kThreads + 1));
}

/// Two threads go on together.
void meet(std::atomic<int>& ready) {
  for (++ready; ready < 2;) std::this_thread::yield();
}

TEST_P(Threads, OneResetsAQpWhileTheOtherDisconnectsIt) {
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

TEST_P(Threads, OneDestroysAQpWhileTheOtherDisconnectsIt) {
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

// Who deregisters may use the memory for something else, whatever a thread of the wire was doing
// with it: a receive that peers cannot reach by a key, and what they can.
TEST_P(Threads, OneDeregistersWhileTheOthersDataArrives) {
  constexpr std::byte kMine{0x11};
  for (int round = 0; round < 100; ++round) {
    const bool send = round % 2 == 0;
    std::vector<std::byte> memory(kMemoryBytes);
    const int access = IBV_ACCESS_LOCAL_WRITE | (send ? 0 : IBV_ACCESS_REMOTE_WRITE);
    auto mr = std::move(*sides[0].pd->reg_mr(memory.data(), memory.size(), access));
    if (send) {
      Sge sge{reinterpret_cast<uint64_t>(memory.data()), kMemoryBytes, mr->lkey};
      RecvWr recv{1, nullptr, &sge, 1};
      const RecvWr* bad = nullptr;
      ASSERT_EQ(sides[0].qp->post_recv(&recv, &bad), 0);
    }
    Sge sge{reinterpret_cast<uint64_t>(sides[1].memory->data()), kMemoryBytes, sides[1].mr->lkey};
    SendWr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {.remote_addr = reinterpret_cast<uint64_t>(memory.data()), .rkey = mr->rkey};
    std::atomic<bool> began{false}, failed{false};
    run_all({[&] {  // the data arrives, driven by this one's polls and by the reactors
               const SendWr* bad = nullptr;
               failed = sides[1].qp->post_send(&wr, &bad) != 0;
               began = true;
               Wc wc;
               while (sides[1].cq->poll({&wc, 1}) == 0) (void)sides[0].cq->poll({&wc, 1});
             },
             [&] {
               while (!began.load()) std::this_thread::yield();
               for (int i = 0; i < round; ++i) std::this_thread::yield();
               mr.reset();
               std::fill(memory.begin(), memory.end(), kMine);
             }});
    ASSERT_FALSE(failed.load());
    ASSERT_EQ(std::count(memory.begin(), memory.end(), kMine), kMemoryBytes) << round;
    connect_again();
  }
}

TEST_P(Threads, OneDestroysAQpWhileTheOthersDataArrives) {
  for (int round = 0; round < 100; ++round) {
    std::atomic<bool> began{false};
    run_all({[&] {
               for (int i = 0; i < 8; ++i) {
                 EXPECT_EQ(post(sides[1], IBV_WR_RDMA_WRITE, kMemoryBytes), 0);
                 began = true;
               }
             },
             [&] {
               while (!began.load()) std::this_thread::yield();
               for (int i = 0; i < round; ++i) std::this_thread::yield();
               sides[0].qp.reset();
             }});
    for (Side& side : sides) side.connection.reset();
    for (Side& side : sides) {
      side.qp.reset();
      make_qp(side);
    }
    connect();
  }
}

}  // namespace
}  // namespace braid::vhca::soft
