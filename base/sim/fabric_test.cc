// Channels deliver in order and exactly once, or break within their retry budget.
#include "base/sim/fabric.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "base/sim/host.h"
#include "base/sim/world.h"

namespace braid::base::sim {
namespace {

std::vector<std::byte> bytes(int value) {
  return std::vector<std::byte>(8, static_cast<std::byte>(value));
}

/// Records everything; answers a request v with v + 100.
class Recorder : public ChannelHandler {
 public:
  void request(std::span<const std::byte> message, std::vector<std::byte>& answer) override {
    requests.push_back(static_cast<int>(message[0]));
    answer = bytes(requests.back() + 100);
  }
  void answered(std::span<const std::byte> answer) override {
    answers.push_back(static_cast<int>(answer[0]));
  }
  void broken(Errc code) override {
    EXPECT_FALSE(why.has_value()) << "told twice";
    why = code;
  }
  std::vector<int> requests;
  std::vector<int> answers;
  std::optional<Errc> why;
};

class Acceptor : public IncomingHandler {
 public:
  void incoming(std::unique_ptr<Channel> channel, std::span<const std::byte> message) override {
    first.push_back(static_cast<int>(message[0]));
    channels.push_back(std::move(channel));
    if (handler != nullptr) channels.back()->set_handler(handler);
  }
  std::vector<int> first;
  std::vector<std::unique_ptr<Channel>> channels;
  ChannelHandler* handler = nullptr;
};

class Fabric : public ::testing::Test {
 protected:
  Fabric() {
    world.fabric().add_port(a, "10.0.0.1");
    world.fabric().add_port(b, "10.0.0.2");
    acceptor.handler = &server;
    listener = *world.fabric().listen(pb, {"0.0.0.0", 7}, acceptor);
  }
  ~Fabric() override {
    client_channel.reset();
    acceptor.channels.clear();
    listener.reset();
  }
  void connect() {
    client_channel =
        *world.fabric().connect(pa, "", {"10.0.0.2", 7}, RetryBudget{}, client, bytes(1));
  }
  /// What a retry budget lasts at most, with some room.
  static constexpr uint64_t kBudgetNs = (4096ull << 12) * 9;

  SimWorld world{{}};
  SimMachine& a = world.add_machine("a");
  SimMachine& b = world.add_machine("b");
  SimHost& pa = a.start_process("client");
  SimHost& pb = b.start_process("server");
  Recorder client, server;
  Acceptor acceptor;
  std::unique_ptr<FabricListener> listener;
  std::unique_ptr<Channel> client_channel;
};

std::vector<int> row(int first, int last) {
  std::vector<int> values;
  for (int v = first; v <= last; ++v) values.push_back(v);
  return values;
}

TEST_F(Fabric, RequestsAreAnsweredInOrderBothWays) {
  connect();
  for (int v = 2; v <= 50; ++v) client_channel->send(bytes(v));
  EXPECT_TRUE(server.requests.empty()) << "nothing is delivered inside send()";
  world.run_for(kMillisecond);
  EXPECT_EQ(acceptor.first, row(1, 1));
  EXPECT_EQ(server.requests, row(2, 50));
  EXPECT_EQ(client.answers, row(102, 150)) << "and none for the first message";
  acceptor.channels[0]->send(bytes(9));
  world.run_for(kMillisecond);
  EXPECT_EQ(client.requests, row(9, 9));
  EXPECT_EQ(server.answers, row(109, 109));
  EXPECT_NE(client_channel->peer_text().find("server"), std::string::npos);
}

TEST_F(Fabric, WhatAStoppedProcessHadSentIsHeardLateAndItsHardwaresAnswersAreNot) {
  EXPECT_EQ(world.fabric().last_heard_ns("10.0.0.1", "10.0.0.2"), 0u);
  connect();
  world.run_for(kMillisecond);
  world.fabric().set_black_hole("10.0.0.2", "10.0.0.1", true);
  acceptor.channels[0]->send(bytes(9));
  pb.pause();
  const uint64_t stopped_ns = world.now_ns();
  world.run_for(30 * kMillisecond);
  EXPECT_LT(world.fabric().last_heard_ns("10.0.0.1", "10.0.0.2"), stopped_ns);
  world.fabric().heal_all();
  world.run_for(30 * kMillisecond);
  const uint64_t heard_ns = world.fabric().last_heard_ns("10.0.0.1", "10.0.0.2");
  EXPECT_GT(heard_ns, stopped_ns + 30 * kMillisecond);
  client_channel->send(bytes(2));
  world.run_for(kMillisecond);
  EXPECT_EQ(client.answers, row(102, 102));
  EXPECT_EQ(world.fabric().last_heard_ns("10.0.0.1", "10.0.0.2"), heard_ns);
}

TEST_F(Fabric, NobodyListensIsRefusedAndNoMachineTimesOut) {
  Recorder other;
  auto refused =
      *world.fabric().connect(pa, "10.0.0.1", {"10.0.0.2", 8}, RetryBudget{}, other, bytes(1));
  world.run_for(kMillisecond);
  EXPECT_EQ(other.why, Errc::kRefused);
  Recorder nowhere;
  auto lost = *world.fabric().connect(pa, "", {"10.9.9.9", 7}, RetryBudget{}, nowhere, bytes(1));
  world.run_for(kBudgetNs);
  EXPECT_EQ(nowhere.why, Errc::kTimedOut);
}

TEST_F(Fabric, AddressesThatAreTakenOrForeignCannotBeListenedOn) {
  EXPECT_EQ(world.fabric().listen(pb, {"10.0.0.2", 7}, acceptor).code(), Errc::kExists);
  EXPECT_EQ(world.fabric().listen(pb, {"10.0.0.1", 9}, acceptor).code(), Errc::kNotFound);
  auto chosen = *world.fabric().listen(pb, {"10.0.0.2", 0}, acceptor);
  EXPECT_NE(chosen->address().port, 0);
  EXPECT_EQ(world.fabric().connect(pa, "10.0.0.2", {"10.0.0.2", 7}, {}, client, {}).code(),
            Errc::kNotFound);
}

TEST_F(Fabric, AShortBlackHoleIsBridgedByRetransmission) {
  connect();
  world.run_for(kMillisecond);
  world.fabric().set_black_hole("10.0.0.1", "10.0.0.2", true);
  for (int v = 2; v <= 9; ++v) client_channel->send(bytes(v));
  world.run_for(50 * kMillisecond);
  EXPECT_TRUE(server.requests.empty());
  world.fabric().set_black_hole("10.0.0.1", "10.0.0.2", false);
  world.run_for(50 * kMillisecond);
  EXPECT_EQ(server.requests, row(2, 9));
  EXPECT_EQ(client.answers, row(102, 109));
  EXPECT_FALSE(client.why);
  EXPECT_GT(world.fabric().faults().black_hole_one_way, 0u);
}

TEST_F(Fabric, LostAnswersAreRepeatedAndRequestsRunOnce) {
  connect();
  world.run_for(kMillisecond);
  world.fabric().set_lose_answers("10.0.0.1", "10.0.0.2", true);
  for (int v = 2; v <= 9; ++v) client_channel->send(bytes(v));
  world.run_for(50 * kMillisecond);
  EXPECT_EQ(server.requests, row(2, 9));
  EXPECT_TRUE(client.answers.empty());
  world.fabric().heal_all();
  world.run_for(50 * kMillisecond);
  EXPECT_EQ(server.requests, row(2, 9)) << "no request runs twice";
  EXPECT_EQ(client.answers, row(102, 109));
  EXPECT_GT(world.fabric().faults().lost_answer, 8u);
}

TEST_F(Fabric, AWayThatStaysClosedBreaksTheSendersEndWithinItsBudget) {
  connect();
  world.run_for(kMillisecond);
  world.fabric().set_port_up("10.0.0.2", false);
  client_channel->send(bytes(2));
  const uint64_t begin_ns = world.now_ns();
  EXPECT_TRUE(world.run_until([&] { return client.why.has_value(); }, kSecond));
  EXPECT_EQ(client.why, Errc::kTimedOut);
  const uint64_t budget_ns = (4096ull << 12) * 7;
  EXPECT_GE(world.now_ns() - begin_ns, budget_ns);
  EXPECT_LE(world.now_ns() - begin_ns, budget_ns * 5 / 4);
  EXPECT_FALSE(server.why) << "who sends nothing learns nothing";
  EXPECT_TRUE(client_channel->broken());
}

TEST_F(Fabric, DelaySpikesKeepTheOrder) {
  connect();
  world.fabric().set_extra_delay("10.0.0.1", "10.0.0.2", kMillisecond);
  for (int v = 2; v <= 50; ++v) client_channel->send(bytes(v));
  world.run_for(10 * kMillisecond);
  EXPECT_EQ(server.requests, row(2, 50));
  EXPECT_GE(world.fabric().faults().delayed, 49u);
}

TEST_F(Fabric, AStoppedProcessAnswersAKilledOneDoesNot) {
  connect();
  world.run_for(kMillisecond);
  pb.pause();
  client_channel->send(bytes(2));
  world.run_for(kMillisecond);
  EXPECT_EQ(client.answers, row(102, 102));
  EXPECT_EQ(world.fabric().faults().to_stopped_process, 1u);
  pb.kill();
  client_channel->send(bytes(3));
  world.run_for(10 * kMillisecond);
  EXPECT_EQ(server.requests, row(2, 2));
  EXPECT_EQ(client.why, Errc::kDisconnected) << "the kernel of a living machine says goodbye";
  EXPECT_FALSE(server.why) << "a dead process is told nothing";
}

TEST_F(Fabric, PowerLossTellsNobody) {
  connect();
  world.run_for(kMillisecond);
  b.power_loss();
  world.run_for(kSecond);
  EXPECT_FALSE(client.why);
  client_channel->send(bytes(2));
  world.run_for(kBudgetNs);
  EXPECT_EQ(client.why, Errc::kTimedOut);
}

TEST_F(Fabric, ClosingTellsThePeerOnce) {
  connect();
  world.run_for(kMillisecond);
  client_channel->send(bytes(2));
  client_channel.reset();
  world.run_for(kMillisecond);
  EXPECT_EQ(server.requests, row(2, 2)) << "what was sent before still arrives";
  EXPECT_EQ(server.why, Errc::kDisconnected);
}

TEST_F(Fabric, RequestsWaitForAHandler) {
  acceptor.handler = nullptr;
  connect();
  for (int v = 2; v <= 5; ++v) client_channel->send(bytes(v));
  world.run_for(30 * kMillisecond);
  ASSERT_EQ(acceptor.channels.size(), 1u);
  EXPECT_TRUE(client.answers.empty());
  acceptor.channels[0]->set_handler(&server);
  EXPECT_TRUE(server.requests.empty());
  world.run_for(kMillisecond);
  EXPECT_EQ(server.requests, row(2, 5));
  world.run_for(30 * kMillisecond);
  EXPECT_EQ(server.requests, row(2, 5));
  EXPECT_EQ(client.answers, row(102, 105));
}

TEST_F(Fabric, AHandlerMayDestroyItsChannel) {
  class Suicide : public ChannelHandler {
   public:
    void request(std::span<const std::byte>, std::vector<std::byte>&) override { channel.reset(); }
    void answered(std::span<const std::byte>) override {}
    void broken(Errc) override { channel.reset(); }
    std::unique_ptr<Channel> channel;
  } suicide;
  acceptor.handler = nullptr;
  connect();
  client_channel->send(bytes(2));
  world.run_for(kMillisecond);
  suicide.channel = std::move(acceptor.channels[0]);
  suicide.channel->set_handler(&suicide);
  world.run_for(kMillisecond);
  EXPECT_EQ(suicide.channel, nullptr);
  EXPECT_EQ(client.why, Errc::kDisconnected);
}

TEST_F(Fabric, HeldMessagesLandInOrderAfterTheirSenderHasGivenUp) {
  connect();
  world.run_for(kMillisecond);
  const uint64_t until_ns = world.now_ns() + 2 * kBudgetNs;
  world.fabric().set_held_until("10.0.0.1", "10.0.0.2", until_ns);
  client_channel->send(bytes(2));
  client_channel->send(bytes(3));
  world.run_for(kMillisecond);
  world.fabric().set_held_until("10.0.0.1", "10.0.0.2", 0);
  client_channel->send(bytes(4));
  world.run_for(kBudgetNs);
  EXPECT_EQ(client.why, Errc::kTimedOut);
  EXPECT_TRUE(server.requests.empty()) << "what follows waits behind it";
  world.run_for(until_ns + kMillisecond - world.now_ns());
  EXPECT_EQ(server.requests, (std::vector{2, 3, 4}));
  EXPECT_EQ(server.why, std::nullopt);
  EXPECT_GT(world.fabric().faults().held, 0u);
  EXPECT_GT(world.fabric().path_hits("10.0.0.1", "10.0.0.2"), 0u);
}

TEST_F(Fabric, ReceivesAreMissingByFaultInOneDirectionOnly) {
  connect();
  world.run_for(kMillisecond);
  world.fabric().set_receive_missing("10.0.0.1", "10.0.0.2", true);
  EXPECT_TRUE(acceptor.channels[0]->receive_missing());
  EXPECT_FALSE(client_channel->receive_missing());
  EXPECT_EQ(world.fabric().path_hits("10.0.0.1", "10.0.0.2"), 1u);
  world.fabric().heal_all();
  EXPECT_FALSE(acceptor.channels[0]->receive_missing());
}

}  // namespace
}  // namespace braid::base::sim
