// A stream against a peer that is a script: data lands where it belongs however it is cut, and a
// peer that breaks the rules ends its own connection.
#include "vhca/soft/tcp/stream.h"

#include <gtest/gtest.h>

#include "vhca/soft/tcp/fake_test.h"

namespace braid::vhca::soft::tcp {
namespace {

using base::Errc;
using fake::Party;

class TcpStreams : public ::testing::Test {
 protected:
  static std::unique_ptr<base::Host> quiet_host() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    return std::move(*base::create_linux_host(options));
  }
  /// The connection ended because the peer broke a rule, and the QP knows.
  void expect_violation(Party& party) {
    party.run();
    EXPECT_EQ(party.events.why, Errc::kProtocol);
    EXPECT_TRUE(party.end.broken);
  }
  const std::unique_ptr<base::Host> host = quiet_host();
};

TEST_F(TcpStreams, a_write_lands_whole_however_it_is_cut) {
  for (const uint32_t length : {0u, 1u, 7u, 8u, 100u, 16320u, 16321u, 16384u, 20001u, 100'000u}) {
    for (const size_t cut : {size_t{1}, size_t{13}, size_t{16384}, SIZE_MAX}) {
      SCOPED_TRACE(fmt::format("{} bytes in pieces of {}", length, cut));
      Party party(*host);
      party.socket.receive_max = cut;
      party.feed(party.request(IBV_WR_RDMA_WRITE, 0, length));
      while (!party.socket.incoming.empty()) party.run();
      ASSERT_EQ(party.end.executed.size(), 1u);
      for (uint32_t i = 0; i < length; ++i) {
        ASSERT_EQ(party.end.memory[i], Party::pattern(i, 1)) << i;
      }
      EXPECT_EQ(party.end.memory[length], std::byte{0});
    }
  }
}

TEST_F(TcpStreams, a_long_send_lands_in_all_pieces_of_its_receive) {
  Party party(*host);
  party.socket.receive_max = 1000;
  party.feed(party.request(IBV_WR_SEND, 0, 30'000));
  while (!party.socket.incoming.empty()) party.run();
  ASSERT_EQ(party.end.executed.size(), 1u);
  for (uint32_t i = 0; i < 30'000; ++i) ASSERT_EQ(party.end.received[i], Party::pattern(i, 1)) << i;
}

TEST_F(TcpStreams, a_response_lands_in_place_and_answers_all_before_it) {
  for (const uint32_t length : {0u, 8u, 4096u, 16320u, 16321u, 100'000u}) {
    Party party(*host);
    party.socket.receive_max = 999;
    ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 64), Outcome::kSent);
    ASSERT_EQ(party.post(IBV_WR_RDMA_READ, length), Outcome::kSent);
    FrameHeader response = party.header(FrameKind::kResponse, 1);
    response.length = length;
    party.feed(response);
    while (!party.socket.incoming.empty()) party.run();
    party.run();
    EXPECT_EQ(party.end.answered, 2u) << length;
    // A landed one is in place; a short one was handed to the core.
    for (uint32_t i = 0; i < length && length > 16320; ++i) {
      ASSERT_EQ(party.landing[i], Party::pattern(i, 1)) << i;
    }
  }
}

TEST_F(TcpStreams, memory_that_goes_in_the_middle_of_a_write_takes_no_more) {
  Party party(*host);
  party.socket.receive_max = 20'000;
  party.feed(party.request(IBV_WR_RDMA_WRITE, 0, 100'000));
  const size_t rest = 50'000;
  while (party.socket.incoming.size() > rest) party.run();
  party.end.registered = false;
  std::fill(party.end.memory.begin(), party.end.memory.end(), std::byte{0});
  while (!party.socket.incoming.empty()) party.run();
  for (const std::byte each : party.end.memory) ASSERT_EQ(each, std::byte{0});
  EXPECT_TRUE(party.end.closed);
  const auto frames = party.sent();
  ASSERT_GE(frames.size(), 2u);
  EXPECT_EQ(static_cast<FrameKind>(frames[frames.size() - 2].kind), FrameKind::kError);
  EXPECT_EQ(frames[frames.size() - 2].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(party.last_kind(), FrameKind::kGone);
}

TEST_F(TcpStreams, memory_that_goes_in_the_middle_of_a_read_ends_the_connection) {
  Party party(*host);
  party.socket.send_room = 1000;
  party.feed(party.request(IBV_WR_RDMA_READ, 0, 50'000));
  party.run();
  EXPECT_TRUE(party.events.wants_write);
  party.end.registered = false;
  party.socket.send_room = SIZE_MAX;
  party.events.wants_read = false;
  // The owner meets it in a post: the socket, shut down, wakes whoever watches it, and the peer.
  (void)party.post(IBV_WR_RDMA_WRITE, 8);
  EXPECT_TRUE(party.events.wants_read);
  EXPECT_TRUE(party.socket.send_ended && party.socket.ended);
  expect_violation(party);
  EXPECT_LE(party.socket.outgoing.size(), 1000u) << "nothing of what is not registered was sent";
}

// --- memory of our own requests

TEST_F(TcpStreams, memory_that_goes_before_its_request_is_sent_fails_the_request) {
  Party party(*host);
  party.run();
  party.socket.send_room = 0;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 5000), Outcome::kSent);
  party.run();
  party.end.own_registered = false;
  party.socket.send_room = SIZE_MAX;
  party.run();
  EXPECT_EQ(party.end.gone, 0u);
  EXPECT_TRUE(party.end.closed);
  const auto frames = party.sent();
  ASSERT_EQ(frames.size(), 2u) << "ready, gone";
  EXPECT_EQ(party.last_kind(), FrameKind::kGone);
  party.run();
  EXPECT_EQ(party.events.why, Errc::kOk) << "the connection stands";
}

TEST_F(TcpStreams, memory_that_goes_in_the_middle_of_a_request_ends_the_connection) {
  Party party(*host);
  party.run();
  party.socket.outgoing.clear();
  party.socket.send_room = 1000;
  ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 50'000), Outcome::kSent);
  EXPECT_EQ(party.socket.outgoing.size(), 1000u);
  party.end.own_registered = false;
  party.socket.send_room = SIZE_MAX;
  party.run();
  EXPECT_EQ(party.end.gone, 0u);
  EXPECT_EQ(party.socket.outgoing.size(), 1000u) << "nothing of what is not registered was sent";
  EXPECT_TRUE(party.socket.send_ended && party.socket.ended) << "the peer sees a loss";
  party.run();
  EXPECT_EQ(party.events.why, Errc::kDisconnected);
}

TEST_F(TcpStreams, memory_that_goes_in_the_middle_of_an_answer_takes_no_more) {
  Party party(*host);
  party.socket.receive_max = 20'000;
  ASSERT_EQ(party.post(IBV_WR_RDMA_READ, 100'000), Outcome::kSent);
  FrameHeader response = party.header(FrameKind::kResponse, 0);
  response.length = 100'000;
  party.feed(response);
  const size_t rest = 50'000;
  while (party.socket.incoming.size() > rest) party.run();
  EXPECT_EQ(party.landing[10'000], Party::pattern(10'000, 1));
  party.end.own_registered = false;
  std::fill(party.landing.begin(), party.landing.end(), std::byte{0});
  while (!party.socket.incoming.empty()) party.run();
  for (const std::byte each : party.landing) ASSERT_EQ(each, std::byte{0});
  EXPECT_TRUE(party.end.closed);
  EXPECT_FALSE(party.end.broken);
  EXPECT_EQ(party.last_kind(), FrameKind::kGone);
  EXPECT_EQ(party.events.why, Errc::kOk) << "the connection stands";
}

TEST_F(TcpStreams, a_violation_is_the_end_for_the_peer_too) {
  Party party(*host);
  party.feed(party.header(FrameKind::kConnect));
  expect_violation(party);
  EXPECT_TRUE(party.socket.send_ended && party.socket.ended);
}

// Of the second READ nothing has been sent when its memory goes: it can still be refused.
TEST_F(TcpStreams, memory_that_goes_before_its_data_is_sent_refuses_the_read) {
  Party party(*host);
  party.run();
  party.socket.send_room = 0;
  party.feed(party.request(IBV_WR_RDMA_WRITE, 0, 8));
  party.feed(party.request(IBV_WR_RDMA_READ, 1, 50'000));
  party.feed(party.request(IBV_WR_RDMA_READ, 2, 50'000));
  party.run();
  ASSERT_EQ(party.end.executed.size(), 3u);
  party.end.registered = false;
  party.socket.send_room = SIZE_MAX;
  (void)party.post(IBV_WR_RDMA_WRITE, 8);  // flushed by the end of it
  EXPECT_EQ(party.end.refused, IBV_WC_REM_ACCESS_ERR);
  const auto frames = party.sent();
  ASSERT_EQ(frames.size(), 3u) << "ready, the error, gone";
  EXPECT_EQ(static_cast<FrameKind>(frames[1].kind), FrameKind::kError);
  EXPECT_EQ(frames[1].sequence, 1u);
  EXPECT_EQ(frames[1].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(party.last_kind(), FrameKind::kGone);
  party.run();
  EXPECT_EQ(party.events.why, Errc::kOk) << "the connection stands";
}

// Two ends that both read and write would wait for each other.
TEST_F(TcpStreams, requests_behind_a_read_do_not_wait_for_its_data) {
  Party party(*host);
  party.socket.send_room = 1000;
  party.feed(party.request(IBV_WR_RDMA_READ, 0, 50'000));
  party.feed(party.request(IBV_WR_RDMA_WRITE, 1, 30'000));
  party.feed(party.request(IBV_WR_SEND, 2, 100));
  for (int i = 0; i < 5; ++i) party.run();
  EXPECT_EQ(party.end.executed.size(), 3u);
  EXPECT_TRUE(party.socket.incoming.empty());
}

TEST_F(TcpStreams, a_turn_sends_so_much_and_no_more) {
  Party party(*host);
  for (uint64_t i = 0; i < 16; ++i) party.feed(party.request(IBV_WR_RDMA_READ, i, 128 * 1024));
  party.stream.run(&party.end, /*woken=*/true);
  EXPECT_LE(party.socket.outgoing.size(), (1u << 20) + 4096);
  EXPECT_TRUE(party.events.wants_write);
  for (int i = 0; i < 3; ++i) party.run();
  EXPECT_EQ(party.socket.outgoing.size(), 17 * sizeof(FrameHeader) + (2u << 20));
}

TEST_F(TcpStreams, who_says_much_before_it_is_ready_is_no_peer) {
  Party party(*host, /*awaits_ready=*/true);
  for (int i = 0; i < 65; ++i) party.feed(party.header(FrameKind::kPort));
  expect_violation(party);
}

TEST_F(TcpStreams, more_reads_at_a_time_than_16_are_refused) {
  Party party(*host);
  party.socket.send_room = 10;
  for (uint64_t i = 0; i < 17; ++i) {
    const auto opcode = i % 2 == 0 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD;
    party.feed(party.request(opcode, i, 8));
  }
  party.run();
  EXPECT_EQ(party.end.executed.size(), 16u);
  EXPECT_EQ(party.end.refused, IBV_WC_REM_INV_REQ_ERR);
  Party slow(*host);
  for (uint64_t i = 0; i < 100; ++i) {
    slow.feed(slow.request(IBV_WR_RDMA_READ, i, 8));
    slow.run();
  }
  EXPECT_EQ(slow.end.executed.size(), 100u) << "16 at a time";
}

TEST_F(TcpStreams, a_farewell_waits_for_a_full_socket) {
  Party party(*host);
  party.run();
  party.socket.send_room = 0;
  party.feed(party.request(IBV_WR_RDMA_WRITE, 0, 8));
  party.feed(party.request(IBV_WR_RDMA_READ, 1, 8));
  party.run();
  party.end.closed = true;
  party.stream.hang_up();
  EXPECT_TRUE(party.stream.unsent());
  EXPECT_FALSE(party.socket.send_ended);
  EXPECT_TRUE(party.events.wants_write);
  party.socket.send_room = 70;
  party.run();
  EXPECT_FALSE(party.socket.send_ended);
  party.socket.send_room = SIZE_MAX;
  party.run();
  EXPECT_FALSE(party.stream.unsent());
  EXPECT_TRUE(party.socket.send_ended);
  const auto frames = party.sent();
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(static_cast<FrameKind>(frames[1].kind), FrameKind::kGone);
  EXPECT_EQ(static_cast<FrameKind>(frames[2].kind), FrameKind::kDisconnect);
  EXPECT_EQ(frames[2].acknowledged, 2u) << "what was executed is told";
  party.run();
}

TEST_F(TcpStreams, an_end_while_the_farewell_waits_is_the_end) {
  Party party(*host);
  party.run();
  party.socket.send_room = 0;
  party.end.closed = true;
  party.stream.hang_up();
  ASSERT_TRUE(party.stream.unsent());
  party.socket.ended = true;
  party.run();
  EXPECT_FALSE(party.stream.unsent());
  EXPECT_NE(party.events.why, Errc::kOk);
}

TEST_F(TcpStreams, a_request_without_receive_is_sent_again_with_all_behind_it) {
  Party party(*host);
  party.end.receives = 0;
  party.feed(party.request(IBV_WR_SEND, 0, 100));
  party.feed(party.request(IBV_WR_RDMA_WRITE, 1, 100));
  party.run();
  EXPECT_EQ(party.last_kind(), FrameKind::kNoReceive);
  EXPECT_TRUE(party.end.executed.empty());
  party.end.receives = 1;
  party.feed(party.request(IBV_WR_SEND, 0, 100));
  party.feed(party.request(IBV_WR_RDMA_WRITE, 1, 100));
  party.run();
  EXPECT_EQ(party.end.executed.size(), 2u);
}

TEST_F(TcpStreams, requests_wait_while_their_answers_find_no_room) {
  Party party(*host);
  party.socket.send_room = 10;
  party.end.receives = 0;
  for (uint64_t i = 0; i < 200; ++i) party.feed(party.request(IBV_WR_SEND, 0, 64));
  for (int i = 0; i < 10; ++i) party.run();
  EXPECT_TRUE(party.stream.stuck());
  EXPECT_FALSE(party.socket.incoming.empty()) << "what cannot be answered is not received";
  EXPECT_EQ(party.events.why, Errc::kOk);
  party.socket.send_room = SIZE_MAX;
  for (int i = 0; i < 10; ++i) party.run();
  EXPECT_FALSE(party.stream.stuck());
  EXPECT_EQ(party.sent().size(), 201u) << "ready, and each is told";
}

TEST_F(TcpStreams, the_end_in_order_is_told_from_a_loss) {
  Party in_order(*host);
  in_order.feed(in_order.header(FrameKind::kDisconnect));
  in_order.run();
  EXPECT_TRUE(in_order.end.disconnected);
  EXPECT_EQ(in_order.events.why, Errc::kDisconnected);
  Party lost(*host);
  lost.socket.ended = true;
  lost.run();
  EXPECT_TRUE(lost.end.broken);
  EXPECT_EQ(lost.events.why, Errc::kDisconnected);
}

// A peer that says its last words and closes resets what still comes from us: our send fails while
// they wait to be read.
TEST_F(TcpStreams, the_last_words_of_a_peer_are_heard_though_a_send_failed) {
  for (const bool in_post : {false, true}) {
    for (const FrameKind last : {FrameKind::kDisconnect, FrameKind::kError}) {
      SCOPED_TRACE(fmt::format("{}, {}", in_post ? "met in a post" : "met in a poll",
                               static_cast<int>(last)));
      Party party(*host);
      party.run();
      party.socket.send_room = 200;
      ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 5000), Outcome::kSent);
      FrameHeader header = party.header(last, 0);
      if (last == FrameKind::kError) header.status = IBV_WC_REM_ACCESS_ERR;
      party.feed(header);
      party.socket.send_error = Errc::kDisconnected;
      party.events.wants_read = false;
      if (in_post) {
        (void)party.post(IBV_WR_RDMA_WRITE, 8);
        EXPECT_TRUE(party.events.wants_read);
      }
      party.stream.run(&party.end, /*woken=*/false);
      EXPECT_EQ(party.events.why, Errc::kDisconnected);
      EXPECT_FALSE(party.end.broken) << "the peer said why";
      EXPECT_EQ(party.end.disconnected, last == FrameKind::kDisconnect);
      EXPECT_TRUE(party.end.closed);
    }
  }
}

// The words come while the answers to what stood before them are made.
TEST_F(TcpStreams, the_last_words_of_a_peer_are_heard_though_an_answer_failed) {
  Party party(*host);
  party.run();
  ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 8), Outcome::kSent);
  party.socket.receive_max = sizeof(FrameHeader);
  party.feed(party.request(IBV_WR_RDMA_READ, 0, 100));
  FrameHeader refusal = party.header(FrameKind::kError, 0);
  refusal.status = IBV_WC_REM_ACCESS_ERR;
  party.feed(refusal);
  party.socket.send_error = Errc::kDisconnected;
  party.stream.run(&party.end, /*woken=*/true);
  EXPECT_FALSE(party.end.broken) << "the peer said why";
  EXPECT_TRUE(party.end.closed);
}

TEST_F(TcpStreams, closing_in_the_middle_of_data_cuts_the_stream_rather_than_lie) {
  Party party(*host);
  party.socket.send_room = 5000;
  ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 50'000), Outcome::kSent);
  party.end.closed = true;
  party.stream.close();
  party.socket.send_room = SIZE_MAX;
  party.run();
  EXPECT_TRUE(party.socket.send_ended);
  EXPECT_LE(party.socket.outgoing.size(), 5000u);
}

// --- peers that break rules

TEST_F(TcpStreams, headers_that_are_not_sound_end_the_connection) {
  struct Case {
    const char* name;
    void (*spoil)(FrameHeader&);
  };
  const Case cases[] = {
      {"magic", [](FrameHeader& h) { h.magic = 1; }},
      {"version", [](FrameHeader& h) { h.version = 9; }},
      {"kind 0", [](FrameHeader& h) { h.kind = 0; }},
      {"unknown kind", [](FrameHeader& h) { h.kind = kFrameKindMax + 1; }},
      {"flags", [](FrameHeader& h) { h.flags = 0x80; }},
      {"opcode", [](FrameHeader& h) { h.opcode = 31; }},
      {"bind", [](FrameHeader& h) { h.opcode = IBV_WR_BIND_MW; }},
      {"reserved", [](FrameHeader& h) { h.reserved[1] = 1; }},
      {"reserved2", [](FrameHeader& h) { h.reserved2 = 1; }},
      {"epoch", [](FrameHeader& h) { h.epoch = 5; }},
      {"length", [](FrameHeader& h) { h.length = UINT64_MAX; }},
      {"length 2^32 more", [](FrameHeader& h) { h.length = h.length + (1ull << 32); }},
      {"too long",
       [](FrameHeader& h) {
         h.length = 0xffffffff;
         h.requested = 0xffffffff;
       }},
      {"acknowledged", [](FrameHeader& h) { h.acknowledged = 1; }},
      {"timer", [](FrameHeader& h) { h.rnr_timer = 32; }}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    Party party(*host);
    FrameHeader header = party.request(IBV_WR_RDMA_WRITE, 0, 8);
    each.spoil(header);
    const uint64_t length = header.length;
    header.length = 0;
    party.feed(header);
    const base::le64 told = length;
    std::copy_n(reinterpret_cast<const std::byte*>(&told), 8, party.socket.incoming.begin() + 8);
    expect_violation(party);
    EXPECT_TRUE(party.end.executed.empty());
  }
}

TEST_F(TcpStreams, answers_to_what_was_not_asked_end_the_connection) {
  for (const FrameKind kind : {FrameKind::kResponse, FrameKind::kNoReceive, FrameKind::kError}) {
    Party party(*host);
    FrameHeader header = party.header(kind, 0);
    header.status = kind == FrameKind::kError ? IBV_WC_REM_OP_ERR : 0;
    party.feed(header);
    expect_violation(party);
  }
  // A response to a write; one of another length; one before its turn.
  Party write(*host);
  ASSERT_EQ(write.post(IBV_WR_RDMA_WRITE, 8), Outcome::kSent);
  write.feed(write.header(FrameKind::kResponse, 0));
  expect_violation(write);
  Party other_length(*host);
  ASSERT_EQ(other_length.post(IBV_WR_RDMA_READ, 8), Outcome::kSent);
  FrameHeader longer = other_length.header(FrameKind::kResponse, 0);
  longer.length = 50'000;
  other_length.feed(longer);
  expect_violation(other_length);
  Party early(*host);
  ASSERT_EQ(early.post(IBV_WR_RDMA_READ, 8), Outcome::kSent);
  ASSERT_EQ(early.post(IBV_WR_RDMA_READ, 8), Outcome::kSent);
  FrameHeader second = early.header(FrameKind::kResponse, 1);
  second.length = 8;
  early.feed(second);
  expect_violation(early);
}

// What is queued refers to the owner's memory, which an answer gives back.
TEST_F(TcpStreams, what_was_not_sent_cannot_be_answered) {
  struct Case {
    const char* name;
    FrameKind kind;
    size_t sent_bytes;  // of a WRITE of 100
    uint64_t acknowledged;
  };
  const Case cases[] = {{"an acknowledgement of what waits", FrameKind::kAnswer, 0, 1},
                        {"one of what is half sent", FrameKind::kAnswer, 163, 1},
                        {"a refusal of what waits", FrameKind::kError, 0, 0},
                        {"one of half a header", FrameKind::kError, 63, 0},
                        {"no receive for what waits", FrameKind::kNoReceive, 0, 0},
                        {"a response to what waits", FrameKind::kResponse, 0, 0}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    Party party(*host);
    party.run();
    party.socket.send_room = each.sent_bytes;
    const bool read = each.kind == FrameKind::kResponse;
    (void)party.post(read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 100);
    FrameHeader answer = party.header(each.kind, 0);
    answer.acknowledged = each.acknowledged;
    if (each.kind == FrameKind::kError) answer.status = IBV_WC_REM_OP_ERR;
    if (read) answer.length = 100;
    party.feed(answer);
    expect_violation(party);
    EXPECT_EQ(party.end.answered, 0u);
  }
}

TEST_F(TcpStreams, what_goes_again_after_rnr_counts_as_not_sent) {
  Party party(*host);
  ASSERT_EQ(party.post(IBV_WR_RDMA_READ, 8), Outcome::kSent);
  ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 100), Outcome::kSent);
  party.socket.send_room = 0;
  FrameHeader refusal = party.header(FrameKind::kNoReceive, 0);
  refusal.acknowledged = 2;  // of the time before
  party.feed(refusal);
  party.run();
  EXPECT_EQ(party.end.not_received, 1);
  EXPECT_EQ(party.end.executed_to, 2u) << "again, but the socket takes nothing";
  EXPECT_EQ(party.end.answered, 0u);
  party.socket.send_room = sizeof(FrameHeader);  // the READ, not the WRITE
  party.run();
  FrameHeader response = party.header(FrameKind::kResponse, 0);
  response.length = 8;
  party.feed(response);
  party.run();
  EXPECT_EQ(party.end.answered, 1u);
  EXPECT_EQ(party.events.why, Errc::kOk);
  FrameHeader early = party.header(FrameKind::kAnswer);
  early.acknowledged = 2;
  party.feed(early);
  expect_violation(party);
}

// Old frames of a request that goes again may still be queued: their going out says nothing.
TEST_F(TcpStreams, what_was_queued_before_rnr_does_not_count_for_what_goes_again) {
  Party party(*host);
  ASSERT_EQ(party.post(IBV_WR_SEND, 100), Outcome::kSent);
  party.socket.send_room = 0;
  ASSERT_EQ(party.post(IBV_WR_RDMA_WRITE, 100), Outcome::kSent);
  party.feed(party.header(FrameKind::kNoReceive, 0));
  party.run();
  ASSERT_EQ(party.end.executed_to, 2u);
  party.socket.send_room = 164;  // the first WRITE
  party.run();
  FrameHeader answer = party.header(FrameKind::kAnswer);
  answer.acknowledged = 2;
  party.feed(answer);
  expect_violation(party);
  EXPECT_EQ(party.end.answered, 0u);
}

TEST_F(TcpStreams, a_response_that_comes_twice_is_dropped) {
  Party party(*host);
  ASSERT_EQ(party.post(IBV_WR_RDMA_READ, 8), Outcome::kSent);
  FrameHeader response = party.header(FrameKind::kResponse, 0);
  response.length = 8;
  party.feed(response);
  party.feed(response);
  party.run();
  EXPECT_EQ(party.end.answered, 1u);
  EXPECT_EQ(party.events.why, Errc::kOk);
}

TEST_F(TcpStreams, only_a_peer_that_is_ready_may_ask) {
  Party party(*host, /*awaits_ready=*/true);
  party.feed(party.request(IBV_WR_RDMA_WRITE, 0, 8));
  expect_violation(party);
  Party ready(*host, /*awaits_ready=*/true);
  ready.feed(ready.header(FrameKind::kReady));
  ready.run();
  EXPECT_TRUE(ready.end.started);
  EXPECT_TRUE(ready.events.ready);
  ready.feed(ready.header(FrameKind::kReady));
  expect_violation(ready);
}

TEST_F(TcpStreams, frames_of_the_connection_manager_are_over_when_it_is) {
  for (const FrameKind kind : {FrameKind::kConnect, FrameKind::kAccept, FrameKind::kReject}) {
    Party party(*host);
    FrameHeader header = party.header(kind);
    header.length = 8;
    party.feed(header);
    expect_violation(party);
  }
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
