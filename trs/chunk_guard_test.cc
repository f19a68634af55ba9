// A client that writes into a chunk again after its request has arrived (docs/chunk-keys.md), and
// what guarded chunks cost one that does not.
#include "base/test_lines.h"
#include "trs/hostile_client_rig.h"
#include "trs/multipath_rig.h"

namespace braid::trs {
namespace {

using base::Errc;
using testing::HostileClient;
using testing::Io;
using testing::MultipathRig;
using testing::SessionRig;
using testing::StoreOp;

constexpr uint32_t kDataBytes = 256;

struct Case {
  const char* name;
  ChunkGuard guard;
  std::vector<std::string> mutants;
  bool reaches;             // what is written late gets to the disk
  bool cut_off;             // and who wrote it is
  bool user_moves = false;  // ServerUser::moves_data()
};

/// Writes what an honest client would, by hand.
class GuardedClient : public HostileClient {
 protected:
  explicit GuardedClient(ChunkGuard guard, std::vector<std::string> mutants = {})
      : HostileClient(std::move(mutants)) {
    adjust_server = [guard](ServerOptions& options) { options.guard = guard; };
  }
  /// A numbered write by connection 1, to the store at 1 MiB.
  void send_write(uint32_t chunk, uint32_t sequence, uint8_t fill) {
    StoreOp op;
    op.offset = 1 << 20;
    wire::SequencedMsg message;
    message.type = uint16_t{16};
    message.usr_len = uint16_t{sizeof(op)};
    message.epoch = epoch;
    message.sequence = sequence;
    std::vector<uint8_t> bytes(kDataBytes + sizeof(op) + sizeof(message), fill);
    std::memcpy(bytes.data() + kDataBytes, &op, sizeof(op));
    std::memcpy(bytes.data() + kDataBytes + sizeof(op), &message, sizeof(message));
    request(*cid1, chunk, 0, bytes, kDataBytes + sizeof(op));
  }
  void write_late(uint32_t chunk, uint8_t fill) {
    const std::vector<uint8_t> bytes(kDataBytes, fill);
    raw->write(*cid1, std::as_bytes(std::span(bytes)), chunks[chunk].address, chunks[chunk].key);
  }
  void post_receive() {
    vhca::RecvWr wr{};
    wr.wr_id = 2000;
    const vhca::RecvWr* bad = nullptr;
    ASSERT_EQ(cid1->qp->post_recv(&wr, &bad), 0);
  }
  bool answered() {
    return until([&] { return cid1->immediates().size() == 1; });
  }
  bool stored(uint8_t fill) const {
    const auto there = std::span(store.bytes).subspan(1 << 20, kDataBytes);
    return std::all_of(there.begin(), there.end(),
                       [&](std::byte each) { return each == std::byte{fill}; });
  }
  /// The honest client would be held up too.
  void hold_theirs() {
    store.hold = true;
    held_before = server->held.size();
  }
  bool until_held(size_t count) {
    return until([this, count] { return server->held.size() == held_before + count; });
  }
  void let_go() {
    store.hold = false;
    server->release();
  }
  size_t held_before = 0;
};

class LateWriter : public GuardedClient, public ::testing::WithParamInterface<Case> {
 protected:
  LateWriter() : GuardedClient(GetParam().guard, GetParam().mutants) {
    store.moves_data = GetParam().user_moves;
  }
  void TearDown() override {
    if (GetParam().mutants.empty()) return HostileClient::TearDown();
    cid0.reset();
    cid1.reset();
  }
};

TEST_P(LateWriter, ReachesTheDiskOnlyWhereChunksAreOpen) {
  open_session(1, kAllFeatures);
  hold_theirs();
  send_write(1, 1, 0xaa);
  ASSERT_TRUE(until_held(1));
  write_late(1, 0xbb);
  const auto written = [&] {
    cid1->poll();
    return std::count_if(cid1->completions.begin(), cid1->completions.end(), [](const auto& wc) {
      return wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE;
    });
  };
  ASSERT_TRUE(until([&] { return GetParam().cut_off ? cid1->lost() : written() == 2; }));
  const auto refused = [](const vhca::Wc& wc) { return wc.status == IBV_WC_REM_ACCESS_ERR; };
  EXPECT_EQ(std::any_of(cid1->completions.begin(), cid1->completions.end(), refused),
            GetParam().cut_off);
  let_go();
  ASSERT_TRUE(until([&] { return stored(0xaa) || stored(0xbb); }));
  EXPECT_EQ(stored(0xbb), GetParam().reaches);
  if (GetParam().cut_off) expect_session_ended();
}

class PunctualWriter : public LateWriter {};

TEST_P(PunctualWriter, ChunkIsOpenAgainFromItsAnswerOn) {
  open_session(1, kAllFeatures);
  const bool counts = GetParam().guard == ChunkGuard::kWindows;
  const unsigned rounds = 300;  // of a key's 256
  for (uint32_t i = 1; i <= rounds; ++i) {
    send_write(1, i, static_cast<uint8_t>(i));
    ASSERT_TRUE(until([&] { return cid1->immediates().size() == 1; })) << i;
    cid1->completions.clear();
    post_receive();
    if (counts) chunks[1].key = ibv_inc_rkey(chunks[1].key);
  }
  EXPECT_TRUE(stored(static_cast<uint8_t>(rounds)));
  EXPECT_EQ(breaches("names a chunk that is not granted"), 0u);
}

const Case kOpen{"Open", ChunkGuard::kNone, {}, true, false};
const Case kWindows{"Windows", ChunkGuard::kWindows, {}, false, true};
const Case kCopy{"Copy", ChunkGuard::kCopy, {}, false, false};

// What is written before the user has moved it is what was sent.
const Case kMoved{"Moved", ChunkGuard::kCopy, {}, true, false, true};

INSTANTIATE_TEST_SUITE_P(Guards, PunctualWriter, ::testing::Values(kOpen, kWindows, kCopy, kMoved),
                         [](const auto& param) { return param.param.name; });
INSTANTIATE_TEST_SUITE_P(
    Guards, LateWriter,
    ::testing::Values(kOpen, kWindows, kCopy, kMoved,
                      Case{"WindowsThatStay", ChunkGuard::kWindows, {"key-kept"}, true, false},
                      Case{"CopyLeftOut", ChunkGuard::kCopy, {"copy-skipped"}, true, false}),
    [](const auto& param) { return param.param.name; });

class HostileWindows : public GuardedClient {
 protected:
  HostileWindows() : GuardedClient(ChunkGuard::kWindows) {}
};

TEST_F(HostileWindows, AnnouncementOfAChunkThatIsNotGrantedEndsTheSession) {
  open_session(1, kAllFeatures);
  store.hold = true;
  wire::SequencedMsg message;
  message.type = uint16_t{16};
  message.epoch = epoch;
  message.sequence = 1u;
  const auto bytes = wire::bytes_of(message);
  std::vector<uint8_t> copy(bytes.size());
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  request(*cid1, 1, 0, copy, 0);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  raw->write_imm(*cid1, {}, 0, 0, ImmCodec(16).encode({1, 0}));  // without data: needs no key
  ASSERT_TRUE(until([&] { return breaches("names a chunk that is not granted") == 1; }));
  store.hold = false;
  server->release();
  expect_breach("names a chunk that is not granted");
}

TEST_F(HostileWindows, KeyOfAnotherConnectionIsRefused) {
  open_session(1, kAllFeatures);
  const std::vector<uint8_t> bytes(16, 1);
  raw->write(*cid0, std::as_bytes(std::span(bytes)), chunks[1].address, chunks[1].key);
  expect_refusal(*cid0);
}

// The chunk is the client's again, by the next key.
TEST_F(HostileWindows, KeyOfBeforeTheAnswerIsRefused) {
  open_session(1, kAllFeatures);
  send_write(1, 1, 7);
  ASSERT_TRUE(answered());
  write_late(1, 8);
  ASSERT_TRUE(until([&] { return cid1->lost(); }));
  EXPECT_TRUE(stored(7));
  expect_refusal(*cid1);
}

// It is easily guessed, and opens nothing while the request is at the disk.
TEST_F(HostileWindows, NextKeyIsRefusedBeforeTheAnswer) {
  open_session(1, kAllFeatures);
  store.hold = true;
  send_write(1, 1, 7);
  ASSERT_TRUE(until([&] { return server->held.size() == 1; }));
  chunks[1].key = ibv_inc_rkey(chunks[1].key);
  write_late(1, 8);
  ASSERT_TRUE(until([&] { return cid1->lost(); }));
  store.hold = false;
  server->release();
  EXPECT_TRUE(stored(7));
  expect_refusal(*cid1);
}

// The window is gone when the server takes it away.
TEST_F(HostileWindows, WhoInvalidatesItsOwnWindowLosesItsSession) {
  open_session(1, kAllFeatures);
  send_write(1, 1, 7);
  vhca::SendWr wr{};
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.invalidate_rkey = chunks[1].key;
  const vhca::SendWr* bad = nullptr;
  ASSERT_EQ(cid1->qp->post_send(&wr, &bad), 0);
  ASSERT_TRUE(until([&] { return cid1->lost(); }));
  expect_breach("message out of order");
}

TEST_F(HostileWindows, OlderClientsAreGivenCopies) {
  open_session();  // its requests have no numbers
  EXPECT_EQ(cid0->completions.back().byte_len, 24u);
  for (ServerSession* session : server->server->sessions()) {
    const bool honest = session->name() == "client";
    EXPECT_EQ(session->path_guards(),
              std::vector<ChunkGuard>{honest ? ChunkGuard::kWindows : ChunkGuard::kCopy});
  }
}

/// Reactors, guard.
class GuardedSession : public SessionRig,
                       public ::testing::WithParamInterface<std::tuple<size_t, ChunkGuard>> {
 protected:
  GuardedSession() : SessionRig(std::get<0>(GetParam())) {
    adjust_server = [](ServerOptions& options) { options.guard = std::get<1>(GetParam()); };
  }
};

TEST_P(GuardedSession, EachIoIsTwoMessagesWhateverTheGuard) {
  connect();
  const ChunkGuard asked = std::get<1>(GetParam());
  // Where permits are lent nobody knows which queue pair uses a chunk next.
  const bool lends = reactor_count > 1;
  const ChunkGuard due = asked == ChunkGuard::kWindows && lends ? ChunkGuard::kCopy : asked;
  EXPECT_EQ(server->server->sessions()[0]->path_guards(), std::vector<ChunkGuard>{due});
  constexpr unsigned kRounds = 600;  // a key has 256 values
  std::vector<std::unique_ptr<Io>> ios;
  unsigned finished = 0, wrong = 0;
  for (unsigned lane = 0; lane < 3 * reactor_count; ++lane) {
    ios.push_back(client->make_io(Direction::kWrite, lane * 16384, 512 + lane * 1500));
    ios.back()->op.from_store = lane % 2;
    fill(ios.back()->buffer, lane);
    ios.back()->after = [&, lane, left = 2 * kRounds](Io& io) mutable {
      ++finished;
      const bool was_write = io.request.direction == Direction::kWrite;
      if (io.status != Errc::kOk || !filled(io.buffer, lane)) ++wrong;
      io.request.direction = was_write ? Direction::kRead : Direction::kWrite;
      if (was_write) std::memset(io.buffer.data(), 0, io.buffer.size());
      if (--left > 0) client->submit(io, lane % reactor_count);
    };
  }
  for (unsigned lane = 0; lane < ios.size(); ++lane)
    client->submit(*ios[lane], lane % reactor_count);
  const size_t total = ios.size() * 2 * kRounds;
  ASSERT_TRUE(until([&] { return finished == total; }));
  EXPECT_EQ(wrong, 0u);
  uint64_t sent = 0, received = 0;
  for (size_t i = 0; i < reactor_count; ++i) {
    const ClientStatistics counts = client->session->queue(i).statistics();
    sent += counts.messages_sent;
    received += counts.messages_received;
  }
  EXPECT_EQ(sent, total);
  EXPECT_EQ(received, total);
  EXPECT_EQ(client->disconnected_calls, 0u);
  expect_all_permits_back();
}

INSTANTIATE_TEST_SUITE_P(Guards, GuardedSession,
                         ::testing::Combine(::testing::Values(1u, 3u),
                                            ::testing::Values(ChunkGuard::kNone,
                                                              ChunkGuard::kWindows,
                                                              ChunkGuard::kCopy)),
                         [](const auto& param) {
                           return "Reactors" + std::to_string(std::get<0>(param.param)) +
                                  std::string(to_string(std::get<1>(param.param)));
                         });

class GuardedPaths : public MultipathRig, public ::testing::WithParamInterface<Case> {
 protected:
  GuardedPaths() {
    adjust_server = [](ServerOptions& options) { options.guard = GetParam().guard; };
    store.moves_data = GetParam().user_moves;
  }
};

TEST_P(GuardedPaths, WriteWhosePathIsLostAtTheDiskKeepsItsData) {
  connect_both([](ClientOptions& options) { options.policy = PathPolicy::kRoundRobin; });
  EXPECT_EQ(server->server->sessions()[0]->path_guards(),
            std::vector<ChunkGuard>(2, GetParam().guard));
  store.hold = true;
  const auto all = make_writes(10);
  submit_all(all);
  ASSERT_TRUE(until([&] { return server->held.size() == all.size(); }));
  cut_a(true);
  ASSERT_TRUE(until([&] { return up() == 1; }));
  // Until the former path is gone at the server too, and its memory would be.
  ASSERT_TRUE(until([&] { return server->server->sessions()[0]->paths() == 1; }));
  world.run_for(3 * base::kSecond);
  store.hold = false;
  server->release();
  ASSERT_TRUE(until([&] { return all_done(all); }));
  expect_written_once(all);
  cut_a(false);
  ASSERT_TRUE(until_up(2));
  for (const auto& io : all) io->request.direction = Direction::kRead;
  submit_all(all);
  ASSERT_TRUE(until([&] { return all_done(all); }));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(filled(all[i]->buffer, i)) << i;
}

TEST_P(GuardedPaths, ReadsThatMoveGetTheirData) {
  connect_both([](ClientOptions& options) { options.policy = PathPolicy::kRoundRobin; });
  for (size_t i = 0; i < store.bytes.size(); ++i) store.bytes[i] = std::byte(i * 7 % 251);
  store.hold = true;
  std::vector<std::unique_ptr<Io>> all;
  for (size_t i = 0; i < 10; ++i) all.push_back(client->make_io(Direction::kRead, i * 4096, 4096));
  submit_all(all);
  ASSERT_TRUE(until([&] { return server->held.size() == all.size(); }));
  to_client_a(true);  // answers are lost: some are given again, by the other path
  store.hold = false;
  server->release();
  ASSERT_TRUE(until([&] { return all_done(all); }));
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]->status, Errc::kOk);
    EXPECT_TRUE(std::equal(all[i]->buffer.begin(), all[i]->buffer.end(),
                           store.bytes.begin() + static_cast<ptrdiff_t>(i * 4096)));
  }
}

struct Said {
  std::shared_ptr<base::TestLines> lines = std::make_shared<base::TestLines>();
};

/// Of two I/O connections that lend each other permits.
class LentChunks : protected Said, public SessionRig {
 protected:
  LentChunks() : SessionRig(2, 1, {}, lines) {
    adjust_server = [](ServerOptions& options) { options.guard = ChunkGuard::kWindows; };
  }
};

TEST_F(LentChunks, ThatAreCopiedWhereWindowsWereAskedForAreTold) {
  connect();
  ASSERT_EQ(server->server->sessions()[0]->path_guards(), std::vector{ChunkGuard::kCopy});
  EXPECT_EQ(lines->with("chunks are copied instead of closed: its I/O connections lend"), 1u);
}

INSTANTIATE_TEST_SUITE_P(Guards, GuardedPaths, ::testing::Values(kOpen, kWindows, kCopy, kMoved),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace braid::trs
