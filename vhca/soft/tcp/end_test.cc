// Who drives a connection when nobody polls, against a peer that is a script on a raw socket: the
// owner hears of every end, the reactor does not spin, and newcomers find a listener that idlers
// besiege.
#include "vhca/soft/tcp/end.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>

#include "base/linux_host.h"
#include "base/log.h"
#include "vhca/soft/device.h"
#include "vhca/soft/tcp/frames.h"
#include "vhca/soft/tcp/wire.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft::tcp {
namespace {

using base::Errc;

constexpr size_t kMemoryBytes = 1 << 20;

class TcpEnds : public ::testing::Test {
 protected:
  TcpEnds() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    host = std::move(*base::create_linux_host(options));
    base::Reactor::Options of_reactor;
    of_reactor.poll_budget_ns = 0;
    reactor = std::move(*base::Reactor::create(*host, of_reactor));
    device =
        std::move(*create_tcp_device(*host, *reactor, {.ip = "127.0.0.1", .port_faults = true}));
    listener = std::move(*device->listen(*reactor, {.ip = "127.0.0.1"}, 1));
    memory = std::move(*host->create_segment(kMemoryBytes, "test"));
    pd = std::move(*device->alloc_pd());
    mr = std::move(
        *pd->reg_mr(memory->data(), kMemoryBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
    channel = std::move(*device->create_comp_channel());
    cq = std::move(*device->create_cq({.capacity = 64, .channel = channel.get()}));
    QpOptions of_qp;
    of_qp.send_cq = of_qp.recv_cq = cq.get();
    of_qp.cap = {16, 16, 1, 1, 0};
    qp = std::move(*pd->create_qp(of_qp));
  }

  /// Turns the reactor until `done`.
  bool wait(const std::function<bool()>& done) {
    const uint64_t deadline_ns = host->now_ns() + 30 * base::kSecond;
    while (!done()) {
      if (host->now_ns() > deadline_ns) return false;
      if (!reactor->turn()) host->yield();
    }
    return true;
  }

  // --- the peer
  static std::unique_ptr<base::StreamSocket> raw_socket(base::Host& host, uint16_t port) {
    return std::move(*host.connect_stream("", {.ip = "127.0.0.1", .port = port}));
  }
  static bool say(base::StreamSocket& socket, std::span<const std::byte> bytes) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    size_t sent = 0;
    return socket.send({&piece, 1}, sent) == Errc::kOk && sent == bytes.size();
  }
  bool hear(base::StreamSocket& socket, std::span<std::byte> bytes) {
    return wait([&] {
             const iovec piece{bytes.data(), bytes.size()};
             size_t received = 0;
             const Errc failed = socket.receive({&piece, 1}, received);
             if (failed != Errc::kOk && failed != Errc::kWouldBlock) return true;
             bytes = bytes.subspan(failed == Errc::kOk ? received : 0);
             return bytes.empty();
           }) &&
           bytes.empty();
  }
  static base::Task<void> accept(Listener& listener, base::Reactor& reactor, Qp& qp,
                                 std::unique_ptr<Connection>* to) {
    auto request = co_await listener.next();
    ConnectParameters parameters;
    parameters.ack_timeout = 0;  // a peer that does not read is waited for
    auto connection = co_await (*request)->accept(reactor, qp, parameters);
    if (connection.ok()) *to = std::move(*connection);
  }
  /// The first 4096 bytes of the memory, registered as `bindable`, for the peer's writes.
  SendWr bind_of(Mw& window, Mr& bindable) const {
    SendWr bind{};
    bind.opcode = IBV_WR_BIND_MW;
    bind.bind_mw.mw = &window;
    bind.bind_mw.rkey = ibv_inc_rkey(window.rkey);
    bind.bind_mw.bind_info.mr = &bindable;
    bind.bind_mw.bind_info.addr = reinterpret_cast<uint64_t>(memory->data());
    bind.bind_mw.bind_info.length = 4096;
    bind.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    return bind;
  }
  /// Speaks the connection manager's part by hand.
  void connect_peer() {
    peer = raw_socket(*host, listener->address().port);
    ASSERT_TRUE(wait([&] { return peer->connected() == Errc::kOk; }));
    ASSERT_TRUE(say(*peer, encode_cm(FrameKind::kConnect, 0x55, 9, {})));
    reactor->spawn(accept(*listener, *reactor, *qp, &connection));
    std::byte answer[sizeof(FrameHeader) + sizeof(CmBody)];
    ASSERT_TRUE(hear(*peer, answer));
    std::memcpy(&accepted, answer, sizeof accepted);
    say_frame(FrameKind::kReady);
    ASSERT_TRUE(wait([&] { return connection != nullptr; }));
    connection->on_disconnect([this] { told = true; });
  }
  void say_frame(FrameKind kind) { ASSERT_TRUE(say_header(header(kind))); }
  bool say_header(const FrameHeader& frame) {
    return say(*peer, std::as_bytes(std::span(&frame, 1)));
  }
  FrameHeader header(FrameKind kind) const {
    FrameHeader made;
    made.magic = kFrameMagic;
    made.version = kFrameVersion;
    made.kind = static_cast<uint8_t>(kind);
    made.epoch = accepted.epoch;
    return made;
  }
  /// Asks for all of the memory `count` times, more than the sockets hold, and reads none of it.
  void ask_for_much(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      FrameHeader read = header(FrameKind::kRequest);
      read.opcode = IBV_WR_RDMA_READ;
      read.sequence = i;
      read.rkey = mr->rkey;
      read.remote_address = reinterpret_cast<uint64_t>(memory->data());
      read.requested = kMemoryBytes;
      ASSERT_TRUE(say_header(read));
    }
    settle();
  }
  /// Until the reactor has had nothing to do for some turns.
  bool settle() {
    int idle = 0;
    const uint64_t deadline_ns = host->now_ns() + 10 * base::kSecond;
    while (idle < 200 && host->now_ns() < deadline_ns) {
      idle = reactor->turn() ? 0 : idle + 1;
      host->yield();
    }
    return idle == 200;
  }
  /// The peer reads what comes until the end.
  bool peer_reads_the_end() {
    std::vector<std::byte> bytes(kMemoryBytes);
    return wait([&] {
      const iovec piece{bytes.data(), bytes.size()};
      size_t received = 0;
      const Errc failed = peer->receive({&piece, 1}, received);
      return failed != Errc::kOk && failed != Errc::kWouldBlock;
    });
  }

  std::unique_ptr<base::Host> host;
  std::unique_ptr<base::Reactor> reactor;
  std::unique_ptr<Device> device;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<base::Segment> memory;
  std::unique_ptr<Pd> pd;
  std::unique_ptr<Mr> mr;
  std::unique_ptr<CompChannel> channel;
  std::unique_ptr<Cq> cq;
  std::unique_ptr<Qp> qp;
  std::unique_ptr<Connection> connection;
  std::unique_ptr<base::StreamSocket> peer;
  FrameHeader accepted;
  bool told = false;
};

TEST_F(TcpEnds, a_peer_that_breaks_a_rule_reads_the_end) {
  connect_peer();
  say_frame(FrameKind::kAccept);
  EXPECT_TRUE(wait([&] { return told; }));
  EXPECT_TRUE(peer_reads_the_end()) << "though the connection's objects stand";
  EXPECT_EQ(qp->query().qp_state, IBV_QPS_ERR);
}

// The owner does not poll: it meets the missing memory in a post, and has to hear of the end.
TEST_F(TcpEnds, a_stream_that_dies_in_a_post_wakes_its_owner) {
  connect_peer();
  ask_for_much(16);
  mr.reset();
  cq->arm();
  (void)channel->event().consume();
  auto other = std::move(*pd->reg_mr(memory->data(), 64, IBV_ACCESS_LOCAL_WRITE));
  Sge sge{reinterpret_cast<uint64_t>(memory->data()), 8, other->lkey};
  SendWr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  const SendWr* bad = nullptr;
  // The socket is full: room for a little, so that the post looks at the memory.
  std::vector<std::byte> bytes(kMemoryBytes);
  for (size_t left = bytes.size(); left > 0;) {
    const iovec piece{bytes.data(), left};
    size_t received = 0;
    const Errc failed = peer->receive({&piece, 1}, received);
    ASSERT_TRUE(failed == Errc::kOk || failed == Errc::kWouldBlock);
    if (failed == Errc::kOk) left -= received;
  }
  ASSERT_EQ(qp->post_send(&wr, &bad), 0);
  EXPECT_TRUE(wait([&] { return told; }));
  EXPECT_EQ(qp->query().qp_state, IBV_QPS_ERR);
  EXPECT_TRUE(wait([&] { return channel->event().consume(); }));
  EXPECT_TRUE(peer_reads_the_end());
}

// Answers have no room, requests go on coming: there is nothing to do but wait for room.
TEST_F(TcpEnds, a_peer_that_asks_and_does_not_read_costs_no_turns) {
  connect_peer();
  ask_for_much(16);
  for (int i = 0; i < 400; ++i) {
    FrameHeader send = header(FrameKind::kRequest);
    send.opcode = IBV_WR_SEND;
    send.sequence = 16;  // there is no receive
    ASSERT_TRUE(say_header(send));
  }
  EXPECT_TRUE(settle()) << "the reactor spins";
  // It goes on when there is room.
  EXPECT_FALSE(told);
  std::vector<std::byte> bytes(16 * (kMemoryBytes + sizeof(FrameHeader)));
  ASSERT_TRUE(hear(*peer, bytes));
  std::vector<std::byte> answers(400 * sizeof(FrameHeader));
  EXPECT_TRUE(hear(*peer, answers)) << "each is told that there is no receive";
}

// The peer's word counts only for what waits for him, and nothing does.
TEST_F(TcpEnds, a_port_that_loses_costs_no_turns_while_nothing_is_asked_of_it) {
  connect_peer();
  FrameHeader loses = header(FrameKind::kPort);
  loses.status = 1;
  ASSERT_TRUE(say_header(loses));
  ASSERT_TRUE(settle());
  int worked = 0;
  const uint64_t until_ns = host->now_ns() + 20 * base::kMillisecond;
  while (host->now_ns() < until_ns) worked += reactor->turn() ? 1 : 0;
  EXPECT_EQ(worked, 0);
  EXPECT_FALSE(told);
}

// Posted receives are filled in place, by threads that are not the owner's.
TEST_F(TcpEnds, memory_without_a_key_for_peers_waits_for_the_wire_too) {
  auto made = std::make_unique<TcpWire>(*host, "");
  TcpWire& wire = *made;
  const auto other = std::move(*SoftDevice::create(*host, *reactor, "other", std::move(made)));
  const auto of_other = std::move(*other->alloc_pd());
  const std::shared_ptr<Activity> activity = wire.add_activity();
  bool gone = false;
  const auto deregister = [&] {
    auto local = std::move(*of_other->reg_mr(memory->data(), 4096, IBV_ACCESS_LOCAL_WRITE));
    of_other->dereg_mr(std::move(local),
                       std::shared_ptr<void>(nullptr, [&gone](void*) { gone = true; }));
  };
  deregister();
  EXPECT_TRUE(gone) << "nobody is at work";
  gone = false;
  activity->count = 1;
  deregister();
  settle();
  EXPECT_FALSE(gone);
  activity->count = 2;
  EXPECT_TRUE(wait([&] { return gone; }));
}

// Nobody but the QP's own peer could have resolved its key.
TEST_F(TcpEnds, a_window_is_taken_back_whatever_other_streams_are_doing) {
  connect_peer();
  auto& wire = static_cast<TcpWire&>(static_cast<SoftDevice&>(*device).wire());
  const std::shared_ptr<Activity> busy = wire.add_activity();
  busy->count = 1;
  const auto bindable = std::move(
      *pd->reg_mr(memory->data(), kMemoryBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
  const auto window = std::move(*pd->alloc_mw(IBV_MW_TYPE_2));
  SendWr bind = bind_of(*window, *bindable), invalidate{};
  bind.next = &invalidate;
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.invalidate_rkey = bind.bind_mw.rkey;
  invalidate.send_flags = IBV_SEND_SIGNALED;
  const SendWr* bad = nullptr;
  ASSERT_EQ(qp->post_send(&bind, &bad), 0);
  Wc wc;
  int polls = 0;
  while (cq->poll({&wc, 1}) == 0 && ++polls < 100) reactor->turn();
  EXPECT_LT(polls, 100) << "it waits for a stream that has nothing to do with it";
  EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  busy->count = 2;
}

/// Posts with the next poll, or arming, as its owner promises one.
class TcpHeldPosts : public TcpEnds {
 protected:
  void connect(uint32_t depth) {
    QpOptions promises = qp->options();
    promises.posts_with_poll = true;
    promises.cap.max_send_wr = depth;
    qp = std::move(*pd->create_qp(promises));
    EXPECT_TRUE(qp->options().posts_with_poll);
    connect_peer();
    EXPECT_TRUE(qp->holds_posts());
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
  }
  void post() {
    const SendWr* bad = nullptr;
    ASSERT_EQ(qp->post_send(&wr, &bad), 0);
  }
  bool heard_nothing() {
    const iovec piece{frame.data(), frame.size()};
    size_t received = 0;
    return peer->receive({&piece, 1}, received) == Errc::kWouldBlock;
  }

  Sge sge{reinterpret_cast<uint64_t>(memory->data()), 8, mr->lkey};
  SendWr wr{};
  Wc wc;
  std::array<std::byte, sizeof(FrameHeader) + 8> frame;
};

TEST_F(TcpHeldPosts, go_with_the_next_poll_or_arming) {
  connect(16);
  for (int i = 0; i < 3; ++i) post();
  EXPECT_TRUE(heard_nothing());
  EXPECT_EQ(cq->poll({&wc, 1}), 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(hear(*peer, frame));

  post();
  EXPECT_TRUE(heard_nothing());
  cq->arm();
  EXPECT_TRUE(hear(*peer, frame));

  post();
  EXPECT_TRUE(heard_nothing()) << "armed still";
  qp->send_posted();
  EXPECT_TRUE(hear(*peer, frame));
}

TEST_F(TcpHeldPosts, go_in_time_if_they_are_more_than_a_connection_holds) {
  connect(512);
  for (int i = 0; i < 500; ++i) post();
  qp->send_posted();
  // The reactor does not turn, whose clock would help a QP that waits for room.
  size_t left = 500 * frame.size();
  const uint64_t deadline_ns = host->now_ns() + 30 * base::kSecond;
  while (left > 0 && host->now_ns() < deadline_ns) {
    const iovec piece{frame.data(), std::min(left, frame.size())};
    size_t received = 0;
    if (peer->receive({&piece, 1}, received) == Errc::kOk) left -= received;
  }
  EXPECT_EQ(left, 0u);
}

TEST_F(TcpHeldPosts, are_held_by_windows_too) {
  connect(16);
  const auto bindable = std::move(
      *pd->reg_mr(memory->data(), kMemoryBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
  const auto window = std::move(*pd->alloc_mw(IBV_MW_TYPE_2));
  post();
  const SendWr bind = bind_of(*window, *bindable);
  const SendWr* bad = nullptr;
  ASSERT_EQ(qp->post_send(&bind, &bad), 0);
  EXPECT_TRUE(heard_nothing());
  EXPECT_EQ(cq->poll({&wc, 1}), 0);
  EXPECT_TRUE(hear(*peer, frame));
}

TEST_F(TcpEnds, who_connects_and_says_nothing_locks_nobody_out) {
  std::deque<std::unique_ptr<base::StreamSocket>> silent;
  for (int i = 0; i < 400; ++i) {
    silent.push_back(raw_socket(*host, listener->address().port));
    if (i % 50 == 0) settle();
  }
  settle();
  connect_peer();
  // Those that came last still stand, and the number of all is bounded.
  int standing = 0;
  for (const auto& each : silent) {
    std::byte byte;
    const iovec piece{&byte, 1};
    size_t received = 0;
    standing += each->receive({&piece, 1}, received) == Errc::kWouldBlock ? 1 : 0;
  }
  EXPECT_GT(standing, 0);
  EXPECT_LE(standing, 128);
}

}  // namespace
}  // namespace braid::vhca::soft::tcp
