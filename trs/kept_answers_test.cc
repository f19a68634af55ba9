// A session that has lost its last path and comes back: what the server had done is not done again.
#include <fmt/format.h>

#include <algorithm>

#include "trs/hostile_client_rig.h"
#include "trs/multipath_rig.h"
#include "trs/server/kept_answers.h"

namespace braid::trs::testing {
namespace {

/// Reactors of client and server.
class CameBack : public MultipathRig, public ::testing::WithParamInterface<size_t> {
 protected:
  CameBack() : MultipathRig(GetParam()) {}
  void open(const std::function<void(ClientOptions&)>& adjust = {}) {
    adjust_client = {};  // one path
    connect([&](ClientOptions& options) {
      options.reconnect.delay_max_ns = 100 * base::kMillisecond;
      if (adjust) adjust(options);
    });
  }
  /// What is submitted now is done, and its answers are lost with the path.
  void lose_answers_of(const std::vector<std::unique_ptr<Io>>& all) {
    const size_t before = store.requests;
    to_client_a(true);
    submit_all(all);
    ASSERT_TRUE(until([&] { return store.requests == before + all.size(); }));
    lose_path();
  }
  void lose_path() {
    cut_a(true);
    ASSERT_TRUE(until([&] { return client->session->state() == SessionState::kReconnecting; }));
  }
  void come_back() {
    const unsigned before = client->restored_calls;
    cut_a(false);
    ASSERT_TRUE(until([&] { return client->restored_calls > before; }));
  }
  size_t times_written(const Io& io) const {
    return static_cast<size_t>(
        std::count(store.write_log.begin(), store.write_log.end(), io.op.offset));
  }
  Errc run(Direction direction = Direction::kWrite) {
    auto io = client->make_io(direction, 1 << 20, 512);
    client->submit(*io);
    EXPECT_TRUE(until([&] { return io->done; }));
    return io->status;
  }
};

TEST_P(CameBack, WhatWasDoneIsAnsweredAndNotDoneAgain) {
  open();
  const auto writes = make_writes(6);
  lose_answers_of(writes);
  come_back();
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
  EXPECT_EQ(client->session->lineage(), 1u);
  EXPECT_EQ(store.opened, 2u) << "the former session was still there: nothing was shown";
  expect_all_permits_back();
}

TEST_P(CameBack, WhatNeverCameIsDone) {
  open();
  const auto writes = make_writes(6);
  to_server_a(true);
  submit_all(writes);
  lose_path();
  EXPECT_TRUE(store.write_log.empty());
  come_back();
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
}

/// Each in a chunk of its own, some of them used before, and numbered in several incarnations.
TEST_P(CameBack, WhatNeverCameInSeveralSessionsIsDone) {
  open();
  EXPECT_EQ(run(), Errc::kOk);
  const auto writes = make_writes(6);
  for (size_t i = 0; i < writes.size(); i += 2) {
    to_server_a(true);
    client->submit(*writes[i], 0);
    client->submit(*writes[i + 1], reactor_count - 1);
    lose_path();
    if (i + 2 == writes.size()) break;
    // The next session begins, and nothing of what it sends arrives but its end.
    const unsigned before = client->restored_calls;
    cut_a(false);
    client->on_reconnected = [&]() -> base::Task<base::Status> {
      to_server_a(true);
      co_return base::Status();
    };
    ASSERT_TRUE(until([&] { return client->restored_calls > before; }));
    lose_path();
  }
  client->on_reconnected = {};
  come_back();
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
  EXPECT_EQ(client->session->lineage(), 1u);
  EXPECT_TRUE(server->server->statistics().breaches.empty());
}

TEST_P(CameBack, WhatEndsWhileThereIsNoPathIsNotDoneAgain) {
  open();
  const auto writes = make_writes(4);
  store.hold = true;
  submit_all(writes);
  ASSERT_TRUE(until([&] { return server->held.size() == writes.size(); }));
  lose_path();
  store.hold = false;
  server->release();
  come_back();
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
}

TEST_P(CameBack, ItIsKnownAlsoToTheSessionAfterTheNext) {
  open();
  const auto writes = make_writes(3);
  lose_answers_of(writes);
  unsigned turns = 0;
  client->on_reconnected = [&]() -> base::Task<base::Status> {
    if (++turns < 4) co_return base::make_error(Errc::kIo, "not yet");
    co_return base::Status();
  };
  come_back();
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  EXPECT_EQ(store.opened, 5u);
  expect_written_once(writes);
}

TEST_P(CameBack, ChunksAreUsedAnewAfterEachLoss) {
  open();
  for (unsigned round = 0; round < 5; ++round) {
    const auto writes = make_writes(6);
    store.write_log.clear();
    lose_answers_of(writes);
    come_back();
    ASSERT_TRUE(until([&] { return all_done(writes); }));
    expect_written_once(writes);
    for (unsigned i = 0; i < 40; ++i) EXPECT_EQ(run(), Errc::kOk);
  }
  EXPECT_TRUE(server->server->statistics().breaches.empty());
}

TEST_P(CameBack, ARequestThatWasGivenUpMeanwhileLeavesItsChunkUsable) {
  open();
  const auto writes = make_writes(3);
  lose_answers_of(writes);
  ASSERT_TRUE(until([&] { return client->returned_calls == 1; }));
  for (size_t i = 0; i < writes.size(); ++i) {
    const size_t reactor = i % reactor_count;
    client->reactors[reactor]->post([this, reactor, io = writes[i].get()] {
      EXPECT_TRUE(client->session->queue(reactor).cancel(io->request));
    });
    client->reactors[reactor]->wake();
  }
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  EXPECT_EQ(writes.front()->status, Errc::kCanceled);
  come_back();
  for (unsigned i = 0; i < 40; ++i) EXPECT_EQ(run(), Errc::kOk);
  EXPECT_TRUE(server->server->statistics().breaches.empty());
}

TEST_P(CameBack, ReadsAreReadAgain) {
  open();
  auto io = client->make_io(Direction::kRead, 0, 512);
  to_client_a(true);
  client->submit(*io);
  ASSERT_TRUE(until([&] { return store.requests == 1; }));
  lose_path();
  fill(std::span(store.bytes).first(512), 9);
  come_back();
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
  EXPECT_TRUE(filled(io->buffer, 9));
  EXPECT_EQ(store.requests, 2u);
}

TEST_P(CameBack, WhatFailedIsTriedAgain) {
  open();
  auto io = client->make_io(Direction::kWrite, 0, 512);
  io->op.fail_errno = EIO;
  to_client_a(true);
  client->submit(*io);
  ASSERT_TRUE(until([&] { return store.requests == 1; }));
  lose_path();
  io->op.fail_errno = 0;
  come_back();
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, Errc::kOk);
  EXPECT_EQ(times_written(*io), 1u);
}

TEST_P(CameBack, ASessionThatItsOperatorEndedIsKnownToo) {
  open();
  const auto writes = make_writes(2);
  const size_t before = store.requests;
  to_client_a(true);
  submit_all(writes);
  ASSERT_TRUE(until([&] { return store.requests == before + writes.size(); }));
  EXPECT_TRUE(server->server->sessions().front()->end("its operator wants it"));
  lose_path();
  come_back();
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  expect_written_once(writes);
}

/// Nothing can tell a new process what the old one had done.
TEST_P(CameBack, AnotherProcessOfTheServerDoesItAgain) {
  open();
  const auto writes = make_writes(2);
  lose_answers_of(writes);
  kill_server();
  start_server();
  come_back();
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  EXPECT_EQ(client->session->lineage(), 2u);
  EXPECT_EQ(times_written(*writes.front()), 2u);
  EXPECT_TRUE(server->server->statistics().breaches.empty());
}

TEST_P(CameBack, AnOlderServerDoesItAgain) {
  adjust_server = [](ServerOptions& options) { options.features &= ~wire::kFeatureKeptAnswers; };
  open();
  const auto writes = make_writes(2);
  lose_answers_of(writes);
  come_back();
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  EXPECT_EQ(client->session->lineage(), 2u);
  EXPECT_EQ(times_written(*writes.front()), 2u);
}

TEST_P(CameBack, ByAnotherPathItIsKnownToo) {
  connect_both();
  cut_b(true);
  ASSERT_TRUE(until_up(1));
  const auto writes = make_writes(4);
  lose_answers_of(writes);
  cut_b(false);
  ASSERT_TRUE(until([&] { return all_done(writes); }));
  EXPECT_EQ(client->restored_calls, 1u);
  expect_written_once(writes);
  cut_a(false);
  ASSERT_TRUE(until_up(2));
}

INSTANTIATE_TEST_SUITE_P(Reactors, CameBack, ::testing::Values(1u, 2u, 4u),
                         [](const auto& param) { return "R" + std::to_string(param.param); });

// --- by hand

class ByHand : public HostileClient {
 protected:
  void open_life(uint16_t recon_cnt) {
    wire::ConnReq requests[2] = {conn_req(0, kAllFeatures), conn_req(1, kAllFeatures)};
    for (wire::ConnReq& each : requests) each.recon_cnt = recon_cnt;
    handshake(requests[0], requests[1]);
    const size_t before = cid0->completions.size();
    send_info();
    ASSERT_TRUE(until([&] {
      cid0->poll();
      return cid0->completions.size() >= before + 2;
    }));
    auto announced =
        wire::parse_info_rsp(raw->received(0, cid0->completions.back().byte_len), 32 << 10, chunks);
    ASSERT_TRUE(announced.ok());
    epoch = *announced;
  }
  void end_life() {
    const uint64_t closed = store.closed;
    cid0.reset();
    cid1.reset();
    ASSERT_TRUE(until([&] { return store.closed == closed + 1; }));
  }
  void send_write(uint32_t of_epoch, uint32_t sequence, size_t due) {
    wire::SequencedMsg message;
    message.type = uint16_t{16};
    message.usr_len = sizeof(StoreOp);
    message.epoch = of_epoch;
    message.sequence = sequence;
    const StoreOp op;
    std::vector<uint8_t> bytes(sizeof(op) + sizeof(message));
    std::memcpy(bytes.data(), &op, sizeof(op));
    std::memcpy(bytes.data() + sizeof(op), &message, sizeof(message));
    request(*cid1, 1, 0, bytes, sizeof(op));
    if (due == 0) return;
    ASSERT_TRUE(until([&] { return cid1->immediates().size() == due; }));
  }
  uint64_t done() const { return store.write_log.size(); }
};

TEST_F(ByHand, NumbersOfTheFormerEpochCountUntilTheNewOneIsUsed) {
  open_life(1);
  const uint32_t former = epoch;
  send_write(former, 1, 1);
  EXPECT_EQ(done(), 1u);
  end_life();
  open_life(2);
  EXPECT_EQ(epoch, wire::next_epoch(former));
  send_write(former, 1, 1);
  EXPECT_EQ(done(), 1u) << "it was done again";
  send_write(former, 2, 2);
  EXPECT_EQ(done(), 2u) << "it had never come";
  send_write(epoch, 1, 3);
  EXPECT_EQ(done(), 3u);
  send_write(former, 2, 0);
  expect_breach("is of another epoch than its session");
}

TEST_F(ByHand, TheNewEpochCountsFromOne) {
  open_life(1);
  send_write(epoch, 1, 1);
  end_life();
  open_life(2);
  send_write(epoch, 2, 0);
  expect_breach("is out of sequence");
}

TEST_F(ByHand, WhoBrokeTheProtocolIsNotRemembered) {
  open_life(1);
  const uint32_t former = epoch;
  send_write(former, 1, 1);
  send_write(former, 7, 0);
  expect_breach("is out of sequence");
  open_life(2);
  EXPECT_FALSE(wire::follows_epoch(epoch, former));
  send_write(former, 1, 0);
  expect_breach("is of another epoch than its session");
}

// --- what is kept

using server::KeptSession;

KeptSession kept(uint8_t uuid, const std::string& client, uint32_t epoch = 5) {
  KeptSession session;
  session.paths_uuid.bytes.fill(uuid);
  session.client = client;
  session.cid_num = 2;
  session.epoch = epoch;
  session.answers.emplace_back();
  return session;
}
wire::Uuid uuid_of(uint8_t uuid) {
  return kept(uuid, "").paths_uuid;
}

TEST(KeptAnswers, AreTakenOnceByTheSameSessionOnly) {
  server::KeptAnswers all({.sessions_max = 4, .of_one_max = 4});
  all.keep(kept(1, "10.0.0.1"));
  all.keep(kept(1, "10.0.0.1", 6));
  EXPECT_EQ(all.size(), 1u);
  EXPECT_FALSE(all.take(uuid_of(2), "", 2));
  const auto taken = all.take(uuid_of(1), "", 2);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->epoch, 6u) << "the newest";
  EXPECT_FALSE(all.take(uuid_of(1), "", 2));
  all.keep(kept(1, "10.0.0.1"));
  EXPECT_FALSE(all.take(uuid_of(1), "another key", 2));
  EXPECT_FALSE(all.take(uuid_of(1), "", 3));
  EXPECT_TRUE(all.take(uuid_of(1), "", 2)) << "who may not have it has taken it away";
}

/// Room for 16 sessions, 4 of a client.
TEST(KeptAnswers, OneClientDrivesOutItsOwn) {
  server::KeptAnswers all({.sessions_max = 16, .of_one_max = 4});
  all.keep(kept(1, "quiet"));
  for (uint8_t i = 10; i < 30; ++i) all.keep(kept(i, "noisy"));
  EXPECT_EQ(all.size(), 5u);
  EXPECT_TRUE(all.take(uuid_of(1), "", 2));
  EXPECT_FALSE(all.take(uuid_of(25), "", 2));
  EXPECT_TRUE(all.take(uuid_of(26), "", 2));
  EXPECT_TRUE(all.take(uuid_of(29), "", 2));
}

/// Who unmapped long ago leaves as much behind as who was cut off just now.
TEST(KeptAnswers, OfManyClientsTheOldestGoes) {
  server::KeptAnswers all({.sessions_max = 16, .of_one_max = 4});
  for (uint8_t i = 1; i <= 16; ++i) all.keep(kept(i, fmt::format("gone {}", i)));
  for (uint8_t i = 20; i < 24; ++i) all.keep(kept(i, "host"));
  EXPECT_EQ(all.size(), 16u);
  for (uint8_t i = 20; i < 24; ++i) EXPECT_TRUE(all.take(uuid_of(i), "", 2));
  EXPECT_FALSE(all.take(uuid_of(4), "", 2));
  EXPECT_TRUE(all.take(uuid_of(5), "", 2));
}

TEST(Epochs, OfOneThatTakesOverFollow) {
  EXPECT_TRUE(wire::follows_epoch(wire::next_epoch(5), 5));
  EXPECT_TRUE(wire::follows_epoch(wire::next_epoch(0xfffffffe), 0xfffffffe));
  EXPECT_EQ(wire::next_epoch(0xffffff), 0x1000001u) << "never zero in the bits that are told";
  EXPECT_EQ(wire::next_epoch(0xffffffff), 1u);
  EXPECT_FALSE(wire::follows_epoch(5, 5));
  EXPECT_FALSE(wire::follows_epoch(4, 5));
  EXPECT_FALSE(wire::follows_epoch(5 + 65, 5));
  EXPECT_FALSE(wire::follows_epoch(1, 0)) << "there was none";
}

}  // namespace
}  // namespace braid::trs::testing
