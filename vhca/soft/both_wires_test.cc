// One device with peers of both wires at a time: what they share (memory, its end, windows, the
// receives of an SRQ, a CQ, words that both change) is one thing, whichever wire a peer came by.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/linux_host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "vhca/device.h"
#include "vhca/soft_device.h"

namespace braid::vhca {
namespace {

using base::Task;

constexpr size_t kBytes = 256 * 1024;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

std::unique_ptr<base::Host> quiet_host() {
  base::LinuxHostOptions options;
  options.log_sink = base::make_null_sink();
  options.allow_peer_copy = true;
  return std::move(*base::create_linux_host(options));
}

/// A client with one QP, on its own reactor; used by one thread at a time.
class Client {
 public:
  Client(base::Host& host, bool by_tcp)
      : reactor(std::move(*base::Reactor::create(host, {}))),
        device(std::move(
            *create_host_device(host, *reactor, {.listen_tcp = true, .tcp_within_host = by_tcp}))),
        pd(std::move(*device->alloc_pd())),
        cq(std::move(*device->create_cq({.capacity = 64}))),
        buffer(kBytes),
        mr(std::move(*pd->reg_mr(buffer.data(), kBytes, kAccess))),
        host_(host) {
    QpOptions options;
    options.send_cq = options.recv_cq = cq.get();
    options.cap.max_send_wr = options.cap.max_recv_wr = 16;
    qp = std::move(*pd->create_qp(options));
  }
  ~Client() {
    connection.reset();
    qp.reset();
  }

  /// Posts it; gives its status.
  ibv_wc_status run(SendWr wr, size_t offset, uint32_t length) {
    Sge sge{reinterpret_cast<uint64_t>(buffer.data() + offset), length, mr->lkey};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    const SendWr* bad = nullptr;
    if (qp->post_send(&wr, &bad) != 0) return IBV_WC_GENERAL_ERR;
    Wc wc;
    const uint64_t deadline_ns = host_.now_ns() + 60 * base::kSecond;
    while (cq->poll({&wc, 1}) == 0) {
      if (host_.now_ns() > deadline_ns) return IBV_WC_RESP_TIMEOUT_ERR;
      if (turn_others) turn_others();
      if (!reactor->turn()) host_.yield();
    }
    return wc.status;
  }
  ibv_wc_status rdma(ibv_wr_opcode opcode, uint64_t address, uint32_t rkey, uint32_t length,
                     size_t offset = 0) {
    SendWr wr{};
    wr.opcode = opcode;
    wr.wr.rdma = {.remote_addr = address, .rkey = rkey};
    return run(wr, offset, length);
  }
  /// Adds to a word; what it was before lies in `buffer`.
  ibv_wc_status add(uint64_t address, uint32_t rkey, uint64_t value) {
    SendWr wr{};
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic = {.remote_addr = address, .compare_add = value, .swap = 0, .rkey = rkey};
    return run(wr, 0, 8);
  }

  const std::unique_ptr<base::Reactor> reactor;
  const std::unique_ptr<Device> device;
  const std::unique_ptr<Pd> pd;
  const std::unique_ptr<Cq> cq;
  std::vector<std::byte> buffer;
  const std::unique_ptr<Mr> mr;
  std::unique_ptr<Qp> qp;
  std::unique_ptr<Connection> connection;
  std::function<void()> turn_others;  // of the same thread

 private:
  base::Host& host_;
};

class BothWires : public ::testing::Test {
 protected:
  enum : size_t { kHere, kByTcp, kClients };

  BothWires() {
    for (auto& client : clients_) client->turn_others = [this] { reactor->turn(); };
    for (size_t i = 0; i < kClients; ++i) qps.push_back(connect(i));
  }
  ~BothWires() override {
    for (auto& client : clients_) client->connection.reset();
    server_connections_.clear();
    qps.clear();
  }

  Client& client(size_t i) { return *clients_[i]; }
  std::span<std::byte> memory(bool in_segment) {
    return in_segment ? std::span(segment_->data(), kBytes) : std::span(heap_);
  }
  std::unique_ptr<Mr> reg(std::span<std::byte> memory, int access = kAccess) {
    return std::move(*pd->reg_mr(memory.data(), memory.size(), access));
  }
  static uint64_t address_of(const std::byte* at) { return reinterpret_cast<uint64_t>(at); }

  /// The server's next completion.
  std::optional<Wc> next() {
    const uint64_t deadline_ns = host_->now_ns() + 60 * base::kSecond;
    for (Wc wc; host_->now_ns() < deadline_ns;) {
      if (cq->poll({&wc, 1}) == 1) return wc;
      reactor->turn();
      for (auto& each : clients_) each->reactor->turn();
    }
    return std::nullopt;
  }
  /// Turns the server's reactor in a thread of its own, so that the clients can each have one.
  class Turning {
   public:
    /// `also`: runs in each turn.
    explicit Turning(
        BothWires& test, std::function<void()> also = [] {})
        : test_(test), also_(std::move(also)) {
      for (auto& client : test.clients_) client->turn_others = nullptr;
    }
    ~Turning() {
      over_ = true;
      thread_.join();
    }

   private:
    BothWires& test_;
    const std::function<void()> also_;
    std::atomic<bool> over_{false};
    std::thread thread_{[this] {
      while (!over_) {
        also_();
        if (!test_.reactor->turn()) test_.host_->yield();
      }
    }};
  };

 private:
  static Task<void> accept(Listener& listener, base::Reactor& reactor, Qp& qp,
                           std::vector<std::unique_ptr<Connection>>& into) {
    auto request = co_await listener.next();
    const ConnectParameters parameters;
    auto accepted = co_await (*request)->accept(reactor, qp, parameters);
    EXPECT_TRUE(accepted.ok()) << accepted.error().message();
    if (accepted.ok()) into.push_back(std::move(*accepted));
  }
  static Task<void> connect(Client& from, Address to) {
    const ConnectParameters parameters;
    auto connected =
        co_await from.device->connect(*from.reactor, *from.qp, to, parameters, 30 * base::kSecond);
    EXPECT_TRUE(connected.ok()) << connected.error().message();
    if (connected.ok()) from.connection = std::move(connected->connection);
  }
  /// The server's QP.
  std::unique_ptr<Qp> connect(size_t i) {
    QpOptions options;
    options.send_cq = options.recv_cq = cq.get();
    options.cap.max_send_wr = 16;
    options.srq = srq.get();
    auto qp = std::move(*pd->create_qp(options));
    Client& from = *clients_[i];
    reactor->spawn(accept(*listener_, *reactor, *qp, server_connections_));
    from.reactor->spawn(connect(from, listener_->address()));
    const uint64_t deadline_ns = host_->now_ns() + 60 * base::kSecond;
    while (from.connection == nullptr || server_connections_.size() <= i) {
      EXPECT_LT(host_->now_ns(), deadline_ns);
      reactor->turn();
      from.reactor->turn();
    }
    return qp;
  }

  const std::unique_ptr<base::Host> host_ = quiet_host();

 protected:
  const std::unique_ptr<base::Reactor> reactor = std::move(*base::Reactor::create(*host_, {}));
  const std::unique_ptr<Device> device =
      std::move(*create_host_device(*host_, *reactor, {.listen_tcp = true}));
  const std::unique_ptr<Pd> pd = std::move(*device->alloc_pd());
  const std::unique_ptr<Cq> cq = std::move(*device->create_cq({.capacity = 64}));
  const std::unique_ptr<Srq> srq = std::move(*pd->create_srq({.max_wr = 16, .max_sge = 1}));

 private:
  const std::unique_ptr<Listener> listener_ =
      std::move(*device->listen(*reactor, {.ip = "127.0.0.1", .port = 0}, 4));
  const std::unique_ptr<base::Segment> segment_ = std::move(*host_->create_segment(kBytes, "test"));
  std::vector<std::byte> heap_ = std::vector<std::byte>(kBytes);
  const std::unique_ptr<Client> clients_[kClients] = {
      std::make_unique<Client>(*host_, /*by_tcp=*/false),
      std::make_unique<Client>(*host_, /*by_tcp=*/true)};
  std::vector<std::unique_ptr<Connection>> server_connections_;

 protected:
  std::vector<std::unique_ptr<Qp>> qps;  // the server's, by client
};

TEST_F(BothWires, peers_came_by_one_each) {
  EXPECT_NE(client(kHere).connection->peer_text().find("process"), std::string::npos);
  EXPECT_EQ(client(kByTcp).connection->peer_text().find("process"), std::string::npos);
  std::set<uint32_t> numbers;
  for (size_t i = 0; i < kClients; ++i) {
    numbers.insert({qps[i]->number(), client(i).qp->number()});
    EXPECT_EQ(qps[i]->query().dest_qp_num, client(i).qp->number());
    EXPECT_EQ(client(i).qp->query().dest_qp_num, qps[i]->number());
  }
  EXPECT_EQ(numbers.size(), 2 * kClients);
}

TEST_F(BothWires, only_who_came_by_shared_memory_shares_the_fate_of_others) {
  for (const Qp* end : {qps[kHere].get(), client(kHere).qp.get()}) EXPECT_TRUE(end->shares_fate());
  for (const Qp* end : {qps[kByTcp].get(), client(kByTcp).qp.get()})
    EXPECT_FALSE(end->shares_fate());
}

TEST_F(BothWires, messages_of_both_take_the_receives_of_one_srq_in_turn) {
  const auto buffer = memory(true);
  const auto mr = reg(buffer);
  constexpr uint64_t kMessages = 8;
  for (uint64_t i = 0; i < kMessages; ++i) {
    Sge sge{address_of(buffer.data() + i * 64), 64, mr->lkey};
    const RecvWr wr{.wr_id = i, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    const RecvWr* bad = nullptr;
    ASSERT_EQ(srq->post_recv(&wr, &bad), 0);
  }
  for (uint64_t i = 0; i < kMessages; ++i) {
    Client& from = client(i % kClients);
    std::memset(from.buffer.data(), static_cast<int>(i + 1), 64);
    // In-host a message gets its receive when the owner polls: it does in next().
    std::optional<Wc> received;
    from.turn_others = [&] {
      reactor->turn();
      Wc wc;
      if (cq->poll({&wc, 1}) == 1) received = wc;
    };
    SendWr wr{};
    wr.opcode = IBV_WR_SEND;
    ASSERT_EQ(from.run(wr, 0, 64), IBV_WC_SUCCESS) << i;
    if (!received.has_value()) received = next();
    ASSERT_TRUE(received.has_value()) << i;
    EXPECT_EQ(received->wr_id, i);
    EXPECT_EQ(received->status, IBV_WC_SUCCESS);
    EXPECT_EQ(received->qp_num, qps[i % kClients]->number());
    EXPECT_EQ(received->src_qp, from.qp->number());
    EXPECT_EQ(buffer[i * 64], static_cast<std::byte>(i + 1));
    EXPECT_EQ(buffer[i * 64 + 63], static_cast<std::byte>(i + 1));
  }
}

TEST_F(BothWires, memory_is_one_and_its_end_is_for_both) {
  for (const bool in_segment : {true, false}) {
    const auto buffer = memory(in_segment);
    auto mr = reg(buffer);
    for (size_t i = 0; i < kClients; ++i) {
      Client& writer = client(i);
      Client& reader = client(1 - i);
      for (const uint32_t length : {8u, 100'000u}) {
        std::memset(writer.buffer.data(), static_cast<int>(length % 100 + i + 1), length);
        ASSERT_EQ(writer.rdma(IBV_WR_RDMA_WRITE, address_of(buffer.data()) + 64, mr->rkey, length),
                  IBV_WC_SUCCESS);
        ASSERT_EQ(reader.rdma(IBV_WR_RDMA_READ, address_of(buffer.data()) + 64, mr->rkey, length),
                  IBV_WC_SUCCESS);
        EXPECT_EQ(std::memcmp(writer.buffer.data(), reader.buffer.data(), length), 0);
      }
    }
    if (in_segment) continue;
    const uint32_t key = mr->rkey;
    mr.reset();
    for (size_t i = 0; i < kClients; ++i) {
      EXPECT_EQ(client(i).rdma(IBV_WR_RDMA_WRITE, address_of(buffer.data()), key, 8),
                IBV_WC_REM_ACCESS_ERR);
    }
  }
}

TEST_F(BothWires, a_window_is_for_the_peer_of_its_queue_pair_on_either_wire) {
  const auto buffer = memory(true);
  const auto mr = reg(buffer);
  uint32_t keys[kClients] = {};
  std::unique_ptr<Mw> windows[kClients];
  for (size_t i = 0; i < kClients; ++i) {
    windows[i] = std::move(*pd->alloc_mw(IBV_MW_TYPE_2));
    SendWr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw = {.mw = windows[i].get(),
                  .rkey = ibv_inc_rkey(windows[i]->rkey),
                  .bind_info = {.mr = mr.get(),
                                .addr = address_of(buffer.data()) + i * 4096,
                                .length = 4096,
                                .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
    keys[i] = wr.bind_mw.rkey;
    const SendWr* bad = nullptr;
    ASSERT_EQ(qps[i]->post_send(&wr, &bad), 0);
    const std::optional<Wc> bound = next();
    ASSERT_TRUE(bound.has_value());
    ASSERT_EQ(bound->status, IBV_WC_SUCCESS);
  }
  for (size_t i = 0; i < kClients; ++i) {
    const uint64_t at = address_of(buffer.data()) + i * 4096;
    EXPECT_EQ(client(i).rdma(IBV_WR_RDMA_WRITE, at, keys[i], 64), IBV_WC_SUCCESS);
  }
  for (size_t i = 0; i < kClients; ++i) {
    const uint64_t others = address_of(buffer.data()) + (1 - i) * 4096;
    EXPECT_EQ(client(i).rdma(IBV_WR_RDMA_WRITE, others, keys[1 - i], 64), IBV_WC_REM_ACCESS_ERR);
  }
}

// The owner takes memory back while both write it; what he stores there then, stays.
class BothWiresAtOnce : public BothWires, public ::testing::WithParamInterface<bool> {
 protected:
  static constexpr size_t kStep = 1024;
  static constexpr std::byte kKept{0x77};
  /// A byte here and there, from the end on, so as to be faster than a copy that still goes on.
  static void use_again(std::span<std::byte> memory) {
    for (size_t at = memory.size(); at >= kStep; at -= kStep) memory[at - 1] = kKept;
  }
  static void expect_kept(std::span<const std::byte> memory) {
    for (size_t at = memory.size(); at >= kStep; at -= kStep) ASSERT_EQ(memory[at - 1], kKept);
  }
};

TEST_P(BothWiresAtOnce, deregistration_waits_for_copies_of_both) {
  const auto buffer = memory(GetParam());
  auto mr = reg(buffer);
  const uint32_t key = mr->rkey;
  std::atomic<int> writes[kClients] = {};
  const Turning turning(*this);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kClients; ++i) {
    std::memset(client(i).buffer.data(), static_cast<int>(i + 1), kBytes);
    threads.emplace_back([&, i] {
      while (client(i).rdma(IBV_WR_RDMA_WRITE, address_of(buffer.data()), key, kBytes) ==
             IBV_WC_SUCCESS) {
        ++writes[i];
      }
    });
  }
  while (writes[kHere] < 3 || writes[kByTcp] < 3) std::this_thread::yield();
  mr.reset();
  use_again(buffer);
  for (std::thread& thread : threads) thread.join();
  expect_kept(buffer);
}

// Receives in memory that no peer may name: a stream lands in them, too.
TEST_P(BothWiresAtOnce, deregistration_waits_for_messages_that_land) {
  constexpr uint32_t kLength = kBytes / 2;
  const auto buffer = memory(GetParam());
  auto mr = reg(buffer, IBV_ACCESS_LOCAL_WRITE);
  const auto post = [&, key = mr->lkey] {
    Sge sge{address_of(buffer.data()), kLength, key};
    const RecvWr wr{.wr_id = 1, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    const RecvWr* bad = nullptr;
    EXPECT_EQ(srq->post_recv(&wr, &bad), 0);
  };
  for (int i = 0; i < 8; ++i) post();
  std::atomic<int> received[kClients] = {};
  const Turning turning(*this, [&] {
    Wc wc;
    if (cq->poll({&wc, 1}) != 1) return;
    post();
    if (wc.status == IBV_WC_SUCCESS) ++received[wc.qp_num == qps[kHere]->number() ? kHere : kByTcp];
  });
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kClients; ++i) {
    std::memset(client(i).buffer.data(), static_cast<int>(i + 1), kBytes);
    threads.emplace_back([&, i] {
      SendWr wr{};
      wr.opcode = IBV_WR_SEND;
      while (client(i).run(wr, 0, kLength) == IBV_WC_SUCCESS) {
      }
    });
  }
  while (received[kHere] < 3 || received[kByTcp] < 3) std::this_thread::yield();
  mr.reset();
  use_again(buffer);
  for (std::thread& thread : threads) thread.join();
  expect_kept(buffer);
}

TEST_P(BothWiresAtOnce, no_addition_to_a_word_is_lost) {
  const auto buffer = memory(GetParam());
  const auto mr = reg(buffer);
  constexpr uint64_t kAdditions = 2000;
  const uint64_t at = address_of(buffer.data()) + 128;
  {
    const Turning turning(*this);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kClients; ++i) {
      threads.emplace_back([&, i] {
        for (uint64_t n = 0; n < kAdditions; ++n) {
          if (client(i).add(at, mr->rkey, 1) != IBV_WC_SUCCESS) return;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  uint64_t sum = 0;
  std::memcpy(&sum, buffer.data() + 128, sizeof(sum));
  EXPECT_EQ(sum, kClients * kAdditions);
}

INSTANTIATE_TEST_SUITE_P(Memory, BothWiresAtOnce, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "segment" : "heap"; });

}  // namespace
}  // namespace braid::vhca
