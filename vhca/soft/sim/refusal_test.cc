// A refusal lasts until its reader has it, and then leaves nothing: also if the reader ends without
// a word.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/sim.h"
#include "vhca/soft/sim/sim_wire.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft::sim {
namespace {

constexpr const char* kRefusalIps[] = {"10.0.0.1", "10.0.0.2"};
constexpr uint64_t kConnectNs = 4 * SimWire::kLingerMaxNs;

struct RefusalSide {
  base::sim::SimHost* process = nullptr;
  std::unique_ptr<base::Reactor> reactor;
  std::unique_ptr<Device> device;
  std::unique_ptr<Pd> pd;
  std::unique_ptr<Cq> cq;
  std::unique_ptr<Qp> qp;
};

class SimRefusal : public ::testing::Test {
 protected:
  SimRefusal() {
    make(client, 0);
    make(server, 1);
    listener = std::move(*server.device->listen(*server.reactor, {kRefusalIps[1], 7}, 1));
    start(server, refusing, refuse());
    start(client, connecting, connect());
  }
  void make(RefusalSide& side, int which) {
    base::sim::SimMachine& machine = world.add_machine(which == 0 ? "client" : "server");
    world.fabric().add_port(machine, kRefusalIps[which]);
    side.process = &machine.start_process("p");
    side.reactor = std::move(*base::Reactor::create(*side.process, {}));
    side.process->drive(*side.reactor);
    side.device = std::move(*create_sim_device(*side.process, *side.reactor, {}));
    side.pd = std::move(*side.device->alloc_pd());
    side.cq = std::move(*side.device->create_cq({.capacity = 16}));
    QpOptions options;
    options.send_cq = options.recv_cq = side.cq.get();
    side.qp = std::move(*side.pd->create_qp(options));
  }
  /// Tasks of a process that is killed are never ended.
  static void start(RefusalSide& side, base::Task<void>& at, base::Task<void> task) {
    at = std::move(task);
    side.reactor->post([&at] { at.start(); });
  }
  base::Task<void> refuse() {
    auto request = co_await listener->next();
    (*request)->reject(std::as_bytes(std::span("no", 2)));
    refused = true;
  }
  base::Task<void> connect() {
    const Address peer{kRefusalIps[1], 7};
    const ConnectParameters parameters;
    result =
        co_await client.device->connect(*client.reactor, *client.qp, peer, parameters, kConnectNs);
  }
  /// The client's process is stopped, its NIC takes the refusal and says so.
  void deliver_to_stopped_client() {
    const bool came = world.run_until([&] { return refused; }, base::kSecond);
    ASSERT_TRUE(came);
    client.process->pause();
    world.run_for(10 * base::kMillisecond);
    ASSERT_GT(world.fabric().faults().to_stopped_process, 0u);
  }

  base::sim::SimWorld world{{}};
  RefusalSide client, server;
  std::unique_ptr<Listener> listener;
  bool refused = false;
  std::optional<base::Result<ConnectResult>> result;
  base::Task<void> refusing, connecting;  // last: they use all of the rest
};

TEST_F(SimRefusal, LeavesNothingWhenItsReaderDiesCutOff) {
  deliver_to_stopped_client();
  world.fabric().set_port_up(kRefusalIps[0], false);
  client.process->kill();
  world.run_for(2 * SimWire::kLingerMaxNs);
  EXPECT_TRUE(world.fabric().open_ends().empty()) << world.fabric().open_ends().front();
}

TEST_F(SimRefusal, IsReadByWhoIsStoppedForLonger) {
  deliver_to_stopped_client();
  world.run_for(2 * SimWire::kLingerMaxNs);
  EXPECT_FALSE(result.has_value());
  client.process->resume();
  world.run_for(10 * base::kMillisecond);
  ASSERT_TRUE(result.has_value());
  ASSERT_TRUE(result->ok()) << result->error().message();
  EXPECT_EQ((*result)->connection, nullptr);
  EXPECT_EQ((*result)->reject_private_data.size(), 2u);
  EXPECT_TRUE(world.fabric().open_ends().empty());
}

}  // namespace
}  // namespace braid::vhca::soft::sim
