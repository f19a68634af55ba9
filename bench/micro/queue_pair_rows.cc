#include "bench/micro/queue_pair_rows.h"

#include <cstring>
#include <optional>

#include "bench/block/remote_server.h"
#include "bench/floor/sockets.h"
#include "bench/micro/loop_row.h"
#include "bench/queue_pair.h"

namespace braid::bench {
namespace {

constexpr size_t kMemoryBytes = 4096;
constexpr uint32_t kLengthBytes = 8;
constexpr uint32_t kReceives = 64;

/// One queue pair with a device and memory of its own.
struct End {
  End(BraidSide& side, Wire wire)
      : device(create_device(side, wire)),
        pair(*device),
        memory(must(side.host->create_segment(kMemoryBytes, "bench"))),
        mr(pair.register_memory(memory->data(), kMemoryBytes)) {
    for (uint32_t i = 0; i < kReceives; ++i) post_receive();
  }

  void post_receive() {
    vhca::Sge sge{.addr = reinterpret_cast<uint64_t>(memory->data()),
                  .length = kLengthBytes,
                  .lkey = mr->lkey};
    vhca::RecvWr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (pair.qp->post_recv(&wr, nullptr) != 0) throw std::runtime_error("post_recv failed");
  }
  /// Completions so far.
  uint64_t poll() {
    vhca::Wc wc[4];
    const int count = pair.cq->poll(wc);
    if (count < 0) throw std::runtime_error("the completion queue was overrun");
    for (int i = 0; i < count; ++i) {
      if (wc[i].status != IBV_WC_SUCCESS) throw std::runtime_error("a request has failed");
      if ((wc[i].opcode & IBV_WC_RECV) != 0) post_receive();
    }
    return completions += static_cast<unsigned>(count);
  }

  const std::unique_ptr<vhca::Device> device;
  const QueuePair pair;
  const std::unique_ptr<base::Segment> memory;
  const std::unique_ptr<vhca::Mr> mr;
  std::unique_ptr<vhca::Connection> connection;
  uint64_t completions = 0;
};

base::Task<base::Result<std::unique_ptr<vhca::Connection>>> accept_one(base::Reactor& reactor,
                                                                       vhca::Listener& listener,
                                                                       vhca::Qp& qp) {
  BRAID_CO_TRY(const auto request, co_await listener.next());
  const vhca::ConnectParameters parameters;
  co_return co_await request->accept(reactor, qp, parameters);
}

/// Two connected ends on one thread.
class Pair {
 public:
  explicit Pair(Wire wire) : sender_(side_, wire), receiver_(side_, wire) {
    base::Reactor& reactor = *side_.reactor;
    const auto listener =
        must(receiver_.device->listen(reactor, {.ip = "127.0.0.1", .port = 0}, 1));
    auto accepted = accept_one(reactor, *listener, *receiver_.pair.qp);
    accepted.start();
    auto connected = must(reactor.run_until_done(sender_.device->connect(
        reactor, *sender_.pair.qp, listener->address(), {}, 10 * base::kSecond)));
    if (!connected.connection) throw std::runtime_error("the connection was rejected");
    sender_.connection = std::move(connected.connection);
    while (!accepted.done()) reactor.turn();
    receiver_.connection = must(accepted.take());
  }

  /// One message, until its sender has a completion, and the receiver if it gets one.
  void pass(ibv_wr_opcode opcode) {
    vhca::Sge sge{.addr = reinterpret_cast<uint64_t>(sender_.memory->data()),
                  .length = kLengthBytes,
                  .lkey = sender_.mr->lkey};
    vhca::SendWr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(receiver_.memory->data());
    wr.wr.rdma.rkey = receiver_.mr->rkey;
    const uint64_t sent = sender_.completions + 1;
    const uint64_t received = receiver_.completions + (opcode == IBV_WR_RDMA_WRITE ? 0 : 1);
    if (sender_.pair.qp->post_send(&wr, nullptr) != 0) throw std::runtime_error("post_send failed");
    bool there = false, answered = false;
    while (!there || !answered) {
      there = receiver_.poll() >= received;
      answered = sender_.poll() >= sent;
    }
  }

 private:
  BraidSide side_;
  End sender_, receiver_;
};

Loop passing(Wire wire, ibv_wr_opcode opcode) {
  return {std::string("software HCA, ") + std::string(to_string(wire)),
          [wire, opcode](benchmark::State& state) {
            Pair pair(wire);
            for (auto _ : state) pair.pass(opcode);
          }};
}

Loop floor_of(Wire wire) {
  if (wire == Wire::kTcp)
    return {"8 bytes there and back over a TCP connection, one thread", &tcp_there_and_back};
  return {"8 bytes copied, a word that says so", [](benchmark::State& state) {
            uint64_t target[16] = {};
            uint64_t number = 0;
            for (auto _ : state) {
              ++number;
              std::memcpy(&target[0], &number, sizeof number);
              benchmark::DoNotOptimize(target);
              target[8] = number;
              benchmark::DoNotOptimize(target);
            }
          }};
}

}  // namespace

void add_queue_pair_rows(std::vector<RowPlan>& plans) {
  for (const Wire wire : {Wire::kInHost, Wire::kTcp}) {
    for (const auto& [name, opcode] :
         {std::pair("WRITE", IBV_WR_RDMA_WRITE), std::pair("SEND", IBV_WR_SEND)}) {
      add_loop_row(plans, fmt::format("post and poll, {} 8 B, {}", name, to_string(wire)),
                   passing(wire, opcode), floor_of(wire));
    }
  }
}

}  // namespace braid::bench
