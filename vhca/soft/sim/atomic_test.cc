// Atomics over a message link are executed exactly once: whatever the network loses or delays, and
// whichever request comes again.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/sim.h"
#include "vhca/soft/qp.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft::sim {
namespace {

constexpr const char* kIps[] = {"10.0.0.1", "10.0.0.2"};
constexpr size_t kBytes = 1 << 16;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC;

struct Side {
  base::sim::SimHost* process = nullptr;
  std::unique_ptr<base::Reactor> reactor;
  std::unique_ptr<Device> device;
  std::unique_ptr<base::Segment> memory;
  std::unique_ptr<Pd> pd;
  std::unique_ptr<Mr> mr;
  std::unique_ptr<Cq> cq;
  std::unique_ptr<Qp> qp;
  std::unique_ptr<Connection> connection;

  uint64_t* words() const { return reinterpret_cast<uint64_t*>(memory->data()); }
};

class SimAtomics : public ::testing::Test {
 protected:
  SimAtomics() {
    make(client, 0);
    make(server, 1);
    auto listener = std::move(*server.device->listen(*server.reactor, {kIps[1], 7}, 1));
    server.reactor->spawn(accept(*listener, server));
    client.reactor->spawn(connect(client));
    const bool connected = world.run_until(
        [&] { return client.connection != nullptr && server.connection != nullptr; },
        base::kSecond);
    BRAID_ASSERT(connected);
  }

  void make(Side& side, int which) {
    base::sim::SimMachine& machine = world.add_machine(which == 0 ? "client" : "server");
    world.fabric().add_port(machine, kIps[which]);
    side.process = &machine.start_process("p");
    side.reactor = std::move(*base::Reactor::create(*side.process, {}));
    side.process->drive(*side.reactor);
    side.device = std::move(*create_sim_device(*side.process, *side.reactor, {}));
    side.memory = std::move(*side.process->create_segment(kBytes, "test"));
    side.pd = std::move(*side.device->alloc_pd());
    side.mr = std::move(*side.pd->reg_mr(side.memory->data(), kBytes, kAccess));
    side.cq = std::move(*side.device->create_cq({.capacity = 1024}));
    QpOptions options;
    options.send_cq = options.recv_cq = side.cq.get();
    side.qp = std::move(*side.pd->create_qp(options));
  }
  static base::Task<void> accept(Listener& listener, Side& server) {
    auto request = co_await listener.next();
    const ConnectParameters parameters;
    auto connection = co_await (*request)->accept(*server.reactor, *server.qp, parameters);
    if (connection.ok()) server.connection = std::move(*connection);
  }
  static base::Task<void> connect(Side& client) {
    const Address peer{kIps[1], 7};
    const ConnectParameters parameters;
    auto result = co_await client.device->connect(*client.reactor, *client.qp, peer, parameters,
                                                  base::kSecond);
    if (result.ok()) client.connection = std::move(result->connection);
  }

  /// From the client: the answer goes to its word `to`.
  int post(ibv_wr_opcode opcode, size_t to, uint64_t compare_add, uint64_t swap = 0) {
    Sge sge{reinterpret_cast<uint64_t>(client.words() + to), 8, client.mr->lkey};
    SendWr wr{};
    wr.wr_id = to;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.atomic = {.remote_addr = reinterpret_cast<uint64_t>(server.words()),
                    .compare_add = compare_add,
                    .swap = swap,
                    .rkey = server.mr->rkey};
    const SendWr* bad = nullptr;
    return client.qp->post_send(&wr, &bad);
  }

  // --- the server's QP as its link sees it
  Request request(ibv_wr_opcode opcode, uint64_t sequence, uint64_t compare_add,
                  uint64_t swap = 0) const {
    return {.opcode = opcode,
            .rkey = server.mr->rkey,
            .remote_address = reinterpret_cast<uint64_t>(server.words()),
            .length = 8,
            .sequence = sequence,
            .compare_add = compare_add,
            .swap = swap};
  }
  /// The answer's 8 bytes; a test failure if it is another.
  uint64_t respond(const Request& request) {
    std::span<const std::byte> result;
    const Answer answer = static_cast<SoftQp&>(*server.qp).respond(request, {}, &result);
    EXPECT_EQ(answer.kind, Answer::Kind::kAck);
    uint64_t value = ~0ull;
    EXPECT_EQ(result.size(), sizeof(value));
    if (result.size() == sizeof(value)) std::memcpy(&value, result.data(), sizeof(value));
    return value;
  }

  base::sim::SimWorld world{{}};
  Side client, server;
};

TEST_F(SimAtomics, ARequestThatComesAgainIsAnsweredAsBeforeAndNotExecuted) {
  const Request add = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 5);
  EXPECT_EQ(respond(add), 0u);
  EXPECT_EQ(respond(add), 0u);
  const Request swap = request(IBV_WR_ATOMIC_CMP_AND_SWP, 1, 5, 9);
  EXPECT_EQ(respond(swap), 5u);
  EXPECT_EQ(respond(add), 0u);
  EXPECT_EQ(respond(swap), 5u) << "again it would fail to compare, and say 9";
  EXPECT_EQ(server.words()[0], 9u);
  // What somebody else did since does not change the answer.
  server.words()[0] = 5;
  EXPECT_EQ(respond(swap), 5u);
  EXPECT_EQ(server.words()[0], 5u);
  EXPECT_EQ(respond(request(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 1)), 5u);
}

TEST_F(SimAtomics, AsManyAnswersAreKeptAsAnInitiatorMayWaitFor) {
  constexpr uint64_t kKept = 16, kAll = 50;
  for (uint64_t i = 0; i < kAll; ++i) {
    EXPECT_EQ(respond(request(IBV_WR_ATOMIC_FETCH_AND_ADD, i, 1)), i);
  }
  for (uint64_t i = kAll - kKept; i < kAll; ++i) {
    EXPECT_EQ(respond(request(IBV_WR_ATOMIC_FETCH_AND_ADD, i, 1)), i);
  }
  std::span<const std::byte> result;
  for (uint64_t i = 0; i < kAll - kKept; ++i) {
    const Answer answer = static_cast<SoftQp&>(*server.qp)
                              .respond(request(IBV_WR_ATOMIC_FETCH_AND_ADD, i, 1), {}, &result);
    EXPECT_EQ(answer.kind, Answer::Kind::kOutOfSequence) << i;
    EXPECT_TRUE(result.empty());
  }
  EXPECT_EQ(server.words()[0], kAll);
  EXPECT_EQ(server.qp->query().qp_state, IBV_QPS_RTS);
}

TEST_F(SimAtomics, AnAnswerOfAnotherLifeOfTheQpIsForgotten) {
  EXPECT_EQ(respond(request(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 5)), 0u);
  server.connection.reset();
  client.connection.reset();
  QpAttr attr{};
  attr.qp_state = IBV_QPS_RESET;
  for (Side* side : {&client, &server}) {
    ASSERT_TRUE(side->qp->modify(attr, IBV_QP_STATE).ok());
  }
  auto listener = std::move(*server.device->listen(*server.reactor, {kIps[1], 7}, 1));
  server.reactor->spawn(accept(*listener, server));
  server.reactor->wake();
  client.reactor->spawn(connect(client));
  client.reactor->wake();
  ASSERT_TRUE(world.run_until(
      [&] { return client.connection != nullptr && server.connection != nullptr; }, base::kSecond));
  EXPECT_EQ(respond(request(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1)), 5u);
  EXPECT_EQ(respond(request(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1)), 5u);
  EXPECT_EQ(server.words()[0], 6u);
}

TEST_F(SimAtomics, LossInEitherDirectionAndDelayLoseAndDoubleNothing) {
  base::sim::SimFabric& fabric = world.fabric();
  constexpr size_t kCount = 600;
  size_t posted = 0, completed = 0;
  world.fabric().set_extra_delay(kIps[0], kIps[1], 200 * base::kMicrosecond);
  fabric.set_extra_delay(kIps[1], kIps[0], 200 * base::kMicrosecond);
  for (unsigned step = 0; completed < kCount; ++step) {
    ASSERT_LT(step, 2000u);
    // Each of these for half an ack time-out, now and then, and all well in between.
    fabric.set_lose_answers(kIps[0], kIps[1], step % 5 == 1);
    fabric.set_black_hole(kIps[0], kIps[1], step % 5 == 3);
    while (posted < kCount && posted - completed < 32) {
      ASSERT_EQ(post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1 + posted, 1), 0);
      ++posted;
    }
    world.run_for(8 * base::kMillisecond);
    Wc wc;
    while (client.cq->poll({&wc, 1}) == 1) {
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << wc.status;
      ASSERT_EQ(wc.wr_id, ++completed);
      ASSERT_EQ(client.words()[wc.wr_id], completed - 1);
    }
  }
  EXPECT_EQ(server.words()[0], kCount);
  EXPECT_GT(fabric.faults().lost_answer, 10u);
  EXPECT_GT(fabric.faults().black_hole_one_way, 10u);
}

TEST_F(SimAtomics, APathThatStaysSilentEndsInOneErrorAndAtMostOneExecution) {
  world.fabric().set_lose_answers(kIps[0], kIps[1], true);
  ASSERT_EQ(post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 1), 0);
  ASSERT_EQ(post(IBV_WR_ATOMIC_CMP_AND_SWP, 2, 1, 100), 0);
  world.run_for(base::kSecond);
  Wc wc[4];
  ASSERT_EQ(client.cq->poll(wc), 2);
  EXPECT_EQ(wc[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(server.words()[0], 100u);
  EXPECT_EQ(client.words()[1], 0u);
}

}  // namespace
}  // namespace braid::vhca::soft::sim
