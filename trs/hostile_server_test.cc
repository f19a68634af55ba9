// A server that breaks the rules, written with raw verbs: the client says what was wrong, keeps its
// requests and its memory, and finds an honest server afterwards.
#include <gmock/gmock.h>

#include "trs/raw_peer.h"

namespace braid::trs::testing {
namespace {

using base::Errc;
using base::kSecond;
using ::testing::HasSubstr;

constexpr uint32_t kNotice = encode_imm({ImmType::kNotice, 0});

/// Accepts whoever comes with given bytes; the info request is answered with given bytes.
class RawServer final : public RawPeer {
 public:
  explicit RawServer(base::sim::SimHost& process) : RawPeer(process, kServerIp) {
    answer.queue_depth = uint16_t{16};
    answer.max_io_size = 16u << 10;
    answer.max_hdr_size = 16u << 10;
    answer.braid_magic = wire::kBraidMagic;
    listen(kServerIp);
  }
  void listen(const char* ip) {
    listeners.push_back(std::move(*device->listen(home(), {ip, kPort}, 16)));
    tasks.push_back(accept_loop(*listeners.back()));
    tasks.back().start();
  }

  /// The info answer for chunks at the start of this peer's memory.
  std::vector<std::byte> info() const {
    struct {
      wire::InfoRsp head;
      wire::SgDescriptor region;
    } message;
    message.head.sg_cnt = uint16_t{1};
    message.region.address = reinterpret_cast<uint64_t>(memory.data());
    message.region.key = chunk_mr ? chunk_mr->rkey : mr->rkey;
    message.region.length = answer.queue_depth * (32u << 10);
    std::vector<std::byte> bytes(sizeof(message));
    std::memcpy(bytes.data(), &message, sizeof(message));
    return bytes;
  }

  /// From now on the chunks have this key, and no other.
  uint32_t new_chunk_key() {
    chunk_mr = std::move(*pd->reg_mr(memory.data(), memory.size() / 2,
                                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    return chunk_mr->rkey;
  }

  wire::ConnRsp answer;
  std::unique_ptr<vhca::Mr> chunk_mr;  // null: the chunks have mr's key
  std::vector<std::unique_ptr<RawConnection>> accepted;
  std::function<uint16_t(size_t request)> permits;  // none: as `answer` says; 0: is rejected
  std::vector<std::unique_ptr<vhca::Listener>> listeners;
  std::vector<base::Task<void>> tasks;

 private:
  base::Task<void> accept_loop(vhca::Listener& listener) {
    for (;;) {
      auto request = co_await listener.next();
      if (!request.ok()) co_return;
      if (permits) answer.queue_depth = permits(requests_++);
      if (answer.queue_depth == 0) {
        (*request)->reject({});
        continue;
      }
      accepted.push_back(make());
      RawConnection& raw = *accepted.back();
      vhca::ConnectParameters parameters;
      parameters.private_data = wire::bytes_of(answer);
      auto result = co_await (*request)->accept(home(), *raw.qp, parameters);
      if (result.ok()) raw.connection = std::move(*result);
    }
  }
  size_t requests_ = 0;
};

class HostileServer : public SessionRig {
 protected:
  explicit HostileServer(size_t reactors = 1) : SessionRig(reactors) {}
  void start_hostile() {
    server_host = &server_machine->start_process("hostile");
    auto program = std::make_unique<RawServer>(*server_host);
    raw = program.get();
    server_host->run(std::move(program));
  }
  void SetUp() override {
    start_hostile();
    start_client();
  }
  std::string open_error() {
    client->open([](ClientOptions& options) {
      options.reconnect.attempt_timeout_ns = options.reconnect.bring_up_timeout_ns = kSecond;
    });
    EXPECT_TRUE(until([&] { return client->open_error || client->opened; }));
    return client->open_error ? client->open_error->message() : "it opened";
  }
  /// Opens a session with the raw server; it then has one write in flight, by permit 1.
  void open_with_write_in_flight(uint32_t features = kAllFeatures) {
    client->open([&](ClientOptions& options) { options.features = features; });
    ASSERT_TRUE(
        until([&] { return raw->accepted.size() == 2 && !received(*raw->accepted[0]).empty(); }));
    raw->send(*raw->accepted[0], raw->info());
    ASSERT_TRUE(until([&] { return client->opened; }));
    io = client->make_io(Direction::kRead, 0, 512);
    fill(std::span(store.bytes).first(512), 5);
    client->submit(*io);
    ASSERT_TRUE(until([&] { return !raw->accepted[1]->immediates().empty(); }));
  }
  std::vector<vhca::Wc> received(RawConnection& connection) {
    connection.poll();
    std::vector<vhca::Wc> all;
    for (const vhca::Wc& wc : connection.completions) {
      if (wc.wr_id >= 1000) all.push_back(wc);
    }
    return all;
  }
  /// The path goes down because of `complaint`; an honest server then completes the request.
  void expect_lost(const std::string& complaint) {
    ASSERT_TRUE(until([&] { return client->disconnected_calls == 1; }));
    EXPECT_THAT(client->disconnected_why, HasSubstr(complaint));
    EXPECT_FALSE(io->done);
    server_host->kill();
    start_server();
    ASSERT_TRUE(until([&] { return io->done; }));
    EXPECT_EQ(io->status, Errc::kOk);
    EXPECT_TRUE(filled(io->buffer, 5));
    EXPECT_EQ(io->completions, 1u);
    expect_all_permits_back();
  }
  void answer(RawConnection& by, uint32_t imm) { raw->write_imm(by, {}, 0, 0, imm); }

  RawServer* raw = nullptr;
  std::unique_ptr<Io> io;
};

TEST_F(HostileServer, AnswerOfAnotherProtocolIsNamed) {
  raw->answer.magic = uint16_t{0x1234};
  EXPECT_THAT(open_error(), HasSubstr("magic 0x1234"));
}

TEST_F(HostileServer, ImpossibleLimitsAreNamed) {
  raw->answer.queue_depth = uint16_t{0xffff};
  EXPECT_THAT(open_error(), HasSubstr("28 bits address"));
}

TEST_F(HostileServer, TooFewPermitsAreNamed) {
  raw->answer.queue_depth = uint16_t{1};
  EXPECT_THAT(open_error(), HasSubstr("too few for 1 reactors"));
}

TEST_F(HostileServer, SilenceInTheInfoExchangeTimesOut) {
  EXPECT_THAT(open_error(), HasSubstr("did not answer the info request"));
}

TEST_F(HostileServer, BadInfoAnswerIsNamed) {
  client->open();
  ASSERT_TRUE(
      until([&] { return raw->accepted.size() == 2 && !received(*raw->accepted[0]).empty(); }));
  auto info = raw->info();
  info[20] = std::byte{1};
  raw->send(*raw->accepted[0], info);
  ASSERT_TRUE(until([&] { return client->open_error.has_value(); }));
  EXPECT_THAT(client->open_error->message(), HasSubstr("info answer with a region"));
}

TEST_F(HostileServer, AnswerToNoRequestTakesThePathDown) {
  open_with_write_in_flight();
  answer(*raw->accepted[1], encode_answer({5, 0}));
  expect_lost("answer to request 5, which is not in flight");
}

TEST_F(HostileServer, AnswerByTheWrongConnectionTakesThePathDown) {
  open_with_write_in_flight();
  answer(*raw->accepted[0], encode_answer({1, 0}));
  expect_lost("answer to request 1, which is not in flight there");
}

TEST_F(HostileServer, AnswerToARequestOutOfRangeTakesThePathDown) {
  open_with_write_in_flight();
  answer(*raw->accepted[1], encode_answer({kImmRequestIdMax, 0}));
  expect_lost("not in flight");
}

TEST_F(HostileServer, ReadAnsweredWithoutItsDataTakesThePathDown) {
  open_with_write_in_flight();
  answer(*raw->accepted[1], encode_answer({1, 0}));
  expect_lost("carries 0 bytes, not 512");
}

TEST_F(HostileServer, ImmediateForServersTakesThePathDown) {
  open_with_write_in_flight();
  answer(*raw->accepted[1], ImmCodec(16).encode({1, 0}));
  expect_lost("is none for a client");
}

TEST_F(HostileServer, NoticeOfOneThatHasNotShownThemTakesThePathDown) {
  open_with_write_in_flight();
  answer(*raw->accepted[0], kNotice);
  expect_lost("connection 0: notice 0xa0000000 where none may come");
  EXPECT_EQ(client->notice_calls, 0u);
}

TEST_F(HostileServer, NoticeToAClientThatHasNotShownThemTakesThePathDown) {
  raw->answer.braid_features = wire::kFeatureNotices;
  open_with_write_in_flight(kAllFeatures & ~wire::kFeatureNotices);
  answer(*raw->accepted[0], kNotice);
  expect_lost("where none may come");
  EXPECT_EQ(client->notice_calls, 0u);
}

TEST_F(HostileServer, NoticeByAnIoConnectionTakesThePathDown) {
  raw->answer.braid_features = wire::kFeatureNotices;
  open_with_write_in_flight();
  answer(*raw->accepted[1], kNotice);
  expect_lost("connection 1: notice 0xa0000000 where none may come");
}

TEST_F(HostileServer, NoticeWithAPayloadTakesThePathDown) {
  raw->answer.braid_features = wire::kFeatureNotices;
  open_with_write_in_flight();
  answer(*raw->accepted[0], kNotice | 1);
  expect_lost("where none may come");
}

TEST_F(HostileServer, FloodOfNoticesIsHeardOnceInATurn) {
  raw->answer.braid_features = wire::kFeatureNotices;
  open_with_write_in_flight();
  client->host.hang(client->home());
  for (int i = 0; i < 40; ++i) {
    answer(*raw->accepted[0], kNotice);
    world.run_for(10 * base::kMicrosecond);
    raw->accepted[0]->poll();
  }
  EXPECT_EQ(client->notice_calls, 0u);
  client->host.unhang(client->home());
  world.run_for(base::kMillisecond);
  EXPECT_GE(client->notice_calls, 1u);
  EXPECT_LE(client->notice_calls, 2u) << "a turn takes 32 completions";
  EXPECT_EQ(client->disconnected_calls, 0u);
}

TEST_F(HostileServer, MessageOutOfPlaceTakesThePathDown) {
  open_with_write_in_flight();
  raw->send(*raw->accepted[1], raw->info());
  expect_lost("connection 1: a receive failed: local length error");
}

TEST_F(HostileServer, KernelServerIsAskedOnConnectionZeroOnly) {
  raw->answer.braid_magic = 0u;
  open_with_write_in_flight();
  size_t answered = 0;
  for (int i = 0; i < 60; ++i) {
    world.run_for(50 * base::kMillisecond);
    for (; answered < raw->accepted[0]->immediates().size(); ++answered) {
      EXPECT_EQ(raw->accepted[0]->immediates()[answered].type, ImmType::kHeartbeat);
      answer(*raw->accepted[0], encode_imm({ImmType::kHeartbeatAck, 0}));
    }
  }
  EXPECT_GT(answered, 5u);
  EXPECT_EQ(raw->accepted[1]->immediates().size(), 1u) << "the read";
  EXPECT_EQ(client->disconnected_calls, 0u);
}

TEST_F(HostileServer, ItsSessionNameIsOneThatLinuxTakesUnlessItIsBraid) {
  for (const bool braid : {false, true}) {
    raw->answer.braid_magic = braid ? wire::kBraidMagic : 0u;
    client->open(
        [](ClientOptions& options) { options.session_name = "host.example.org/node.clt"; });
    const size_t before = raw->accepted.size();
    ASSERT_TRUE(until([&] {
      return raw->accepted.size() == before + 2 && !received(*raw->accepted[before]).empty();
    }));
    wire::InfoReq info;
    const auto place = (received(*raw->accepted[before])[0].wr_id - 1000);
    std::memcpy(&info, raw->received(place, sizeof(info)).data(), sizeof(info));
    EXPECT_STREQ(info.session_name.data(),
                 braid ? "host.example.org/node.clt" : "host-example-org-node-clt");
    server_host->kill();
    start_hostile();
    ASSERT_TRUE(until([&] { return client->open_error || client->opened; }));
    client->open_error.reset();
  }
}

// --- a kernel server that invalidates (its default): each answer brings the chunk's next key

class InvalidatingServer : public HostileServer {
 protected:
  void SetUp() override {
    HostileServer::SetUp();
    raw->answer.flags = wire::kNewRkey;
    raw->answer.braid_magic = 0u;
    raw->new_chunk_key();
  }
  void answer_with_key(uint16_t request_id, uint16_t buf_id, uint32_t key) {
    wire::RkeyRsp message;
    message.buf_id = buf_id;
    message.rkey = key;
    raw->send_imm(*raw->accepted[1], wire::bytes_of(message), encode_answer({request_id, 0}));
  }
};

TEST_F(InvalidatingServer, EachRequestGoesToItsChunkByTheKeyOfTheAnswerBefore) {
  open_with_write_in_flight();
  // More often than there are receives: each is posted again with the place for its message.
  for (size_t i = 1; i < 60; ++i) {
    answer_with_key(1, 1, raw->new_chunk_key());
    ASSERT_TRUE(until([&] { return io->done; })) << i;
    EXPECT_EQ(io->status, Errc::kOk);
    io = client->make_io(Direction::kRead, 0, 512);
    client->submit(*io);
    // By another key it would be refused, and the path lost.
    ASSERT_TRUE(until([&] { return raw->accepted[1]->immediates().size() == i + 1; })) << i;
  }
  EXPECT_EQ(client->disconnected_calls, 0u);
}

TEST_F(InvalidatingServer, AKeyForAnotherChunkThanTheAnswersTakesThePathDown) {
  open_with_write_in_flight();
  answer_with_key(1, 2, raw->new_chunk_key());
  expect_lost("key answer for chunk 2 in the answer to request 1");
}

TEST_F(InvalidatingServer, AKeyInTheAnswerToNoRequestTakesThePathDown) {
  open_with_write_in_flight();
  answer_with_key(5, 5, raw->new_chunk_key());
  expect_lost("answer to request 5, which is not in flight");
}

TEST_F(InvalidatingServer, AHalfKeyTakesThePathDown) {
  open_with_write_in_flight();
  raw->send_imm(*raw->accepted[1], std::vector<std::byte>(4), encode_answer({1, 0}));
  expect_lost("key answer of 4 bytes");
}

TEST_F(InvalidatingServer, AKeyWithAnImmediateThatIsNoAnswerTakesThePathDown) {
  open_with_write_in_flight();
  raw->send_imm(*raw->accepted[1], std::vector<std::byte>(8), encode_imm({ImmType::kHeartbeat, 0}));
  expect_lost("is no answer");
}

class HostileServerOfTwoReactors : public HostileServer {
 protected:
  HostileServerOfTwoReactors() : HostileServer(2) {}
};

// The first path's attempt ends when the limits are known, and the second reactor has no permits
// yet: there is a chunk and an answer slot for as many as were granted first, and for no more.
TEST_F(HostileServerOfTwoReactors, PermitsAreThoseOfTheFirstGrantAlsoWhereTheyAreMadeLater) {
  constexpr const char* kOtherIp = "10.1.0.1";
  world.fabric().add_port(*server_machine, kOtherIp);
  world.fabric().add_port(*client_machine, "10.1.1.1");
  raw->listen(kOtherIp);
  client->more_paths = {client->add_port("10.1.1.1", kOtherIp)};
  raw->permits = [](size_t request) -> uint16_t {
    return request == 0 ? 16 : request == 1 ? 0 : 32;
  };
  client->open();
  ASSERT_TRUE(
      until([&] { return raw->accepted.size() == 4 && !received(*raw->accepted[1]).empty(); }));
  raw->send(*raw->accepted[1], raw->info());
  ASSERT_TRUE(until([&] { return client->opened; }));
  ASSERT_EQ(client->session->limits().queue_depth, 16u);
  expect_all_permits_back();
}

// An attempt that comes to nothing lends nothing.
TEST_F(HostileServerOfTwoReactors, WhoHasLentNoPermitsTakesAServerBackThatKnowsOfNone) {
  client->open();
  ASSERT_TRUE(
      until([&] { return raw->accepted.size() == 3 && !received(*raw->accepted[0]).empty(); }));
  raw->send(*raw->accepted[0], raw->info());
  ASSERT_TRUE(until([&] { return client->opened; }));
  server_host->kill();
  start_hostile();
  raw->answer.braid_features = kAllFeatures;
  ASSERT_TRUE(
      until([&] { return raw->accepted.size() == 3 && !received(*raw->accepted[0]).empty(); }));
  server_host->kill();
  start_hostile();
  ASSERT_TRUE(
      until([&] { return raw->accepted.size() == 3 && !received(*raw->accepted[0]).empty(); }));
  raw->send(*raw->accepted[0], raw->info());
  EXPECT_TRUE(until([&] { return client->restored_calls == 1; })) << client->session->explain();
}

TEST_F(HostileServer, ThatIsNotBraidsAndComesBackAsBraidsIsKnownAsThat) {
  raw->answer.braid_magic = 0u;
  client->open();
  ASSERT_TRUE(
      until([&] { return raw->accepted.size() == 2 && !received(*raw->accepted[0]).empty(); }));
  raw->send(*raw->accepted[0], raw->info());
  ASSERT_TRUE(until([&] { return client->opened; }));
  EXPECT_FALSE(client->session->limits().braid_peer);
  server_host->kill();
  start_server();
  ASSERT_TRUE(until([&] { return client->restored_calls == 1; })) << client->session->explain();
  EXPECT_TRUE(client->session->limits().braid_peer);
}

// Whoever has the address of one path may accept there: what the session knows of its server comes
// from the path that began it.
TEST_F(HostileServer, WhoAnswersAtAnotherPathChangesNothingOfTheSession) {
  constexpr const char* kOtherIp = "10.1.0.1";
  world.fabric().add_port(*server_machine, kOtherIp);
  world.fabric().add_port(*client_machine, "10.1.1.1");
  raw->listen(kOtherIp);
  raw->answer.braid_features = wire::kFeatureNotices;
  client->more_paths = {client->add_port("10.1.1.1", kOtherIp)};
  client->open();
  ASSERT_TRUE(
      until([&] { return raw->accepted.size() == 2 && !received(*raw->accepted[0]).empty(); }));
  raw->answer.braid_magic = raw->answer.braid_features = 0u;
  raw->send(*raw->accepted[0], raw->info());
  ASSERT_TRUE(until([&] { return client->opened && raw->accepted.size() > 3; }));
  EXPECT_EQ(client->disconnected_calls, 0u);
  const SessionLimits limits = client->session->limits();
  EXPECT_TRUE(limits.braid_peer);
  EXPECT_TRUE(limits.notices);
  EXPECT_EQ(limits.features, uint32_t{wire::kFeatureNotices});
}

TEST_F(HostileServer, EveryErrnoComesThrough) {
  open_with_write_in_flight();
  answer(*raw->accepted[1], encode_answer({1, 511}));
  ASSERT_TRUE(until([&] { return io->done; }));
  EXPECT_EQ(io->status, base::errc_from_errno(511));
  EXPECT_NE(io->status, Errc::kOk);
}

}  // namespace
}  // namespace braid::trs::testing
