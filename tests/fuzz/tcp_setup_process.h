// The processes of the target tcp_setup that ship: a device of the TCP wire, who connects and
// listens by it, and what must hold of each queue pair.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/reactor.h"
#include "base/sim.h"
#include "tests/fuzz/two_party.h"
#include "vhca/device.h"
#include "vhca/soft/device.h"
#include "vhca/soft/tcp/wire.h"

namespace braid::fuzz {

/// One QP with its CQ and memory: asked for, or asked to be.
struct SetupLine {
  static constexpr size_t kMessageBytes = 64;

  std::vector<std::byte> memory = std::vector<std::byte>(2 * kMessageBytes);
  std::unique_ptr<vhca::Mr> mr;
  std::unique_ptr<vhca::Cq> cq;
  std::unique_ptr<vhca::Qp> qp;
  std::unique_ptr<vhca::ConnectRequest> request;  // of who is asked
  std::unique_ptr<vhca::Connection> connection;
  std::vector<std::byte> refusal;  // what a rejection told
  std::optional<base::Error> error;
  bool decided = false;
  uint64_t begun_ns = 0, bound_ns = 0, decided_ns = 0;
  unsigned posted = 0, completed = 0;
  bool received = false;
  unsigned told = 0;  // that the other one is gone

  void post_receive() {
    vhca::Sge piece = piece_at(kMessageBytes);
    vhca::RecvWr wr{};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    require(qp->post_recv(&wr, nullptr) == 0, "a receive can be posted");
    ++posted;
  }
  void send(uint64_t stamp) {
    std::memcpy(memory.data(), &stamp, sizeof stamp);
    vhca::Sge piece = piece_at(0);
    vhca::SendWr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    if (qp->post_send(&wr, nullptr) == 0) ++posted;
  }
  void poll() {
    vhca::Wc wc[4];
    for (int count = cq->poll(wc); count > 0; count = cq->poll(wc)) {
      for (int i = 0; i < count; ++i) {
        received = received || (wc[i].status == IBV_WC_SUCCESS && wc[i].opcode == IBV_WC_RECV);
      }
      completed += static_cast<unsigned>(count);
      require(completed <= posted, "each work request completes once");
    }
  }
  uint64_t heard() const {
    uint64_t stamp = 0;
    std::memcpy(&stamp, memory.data() + kMessageBytes, sizeof stamp);
    return stamp;
  }
  /// It is connected: says something, and listens for the other one's end.
  void begin() {
    connection->on_disconnect([this] { ++told; });
    send(1);
  }
  /// There is no other one, or he is gone, and its program was told so.
  bool is_left() const {
    return connection == nullptr || (connection->disconnected() && told == 1);
  }
  /// Gives it up: nothing of it is left to wait for.
  void finish() {
    require(decided, "who gives up a queue pair knows its outcome");
    require(told <= 1, "an end is told once");
    connection.reset();
    vhca::QpAttr attr{};
    attr.qp_state = IBV_QPS_ERR;
    require(qp->modify(attr, IBV_QP_STATE).ok(), "any queue pair can be given up");
    poll();
    require(completed == posted, "all work requests of a lost queue pair complete");
  }

 private:
  vhca::Sge piece_at(size_t offset) {
    return {.addr = reinterpret_cast<uint64_t>(memory.data() + offset),
            .length = kMessageBytes,
            .lkey = mr->lkey};
  }
};

class SetupProcess final : public base::sim::SimProgram {
 public:
  static constexpr int kBacklog = 8;
  static constexpr uint32_t kRegistrationsMax = 128;
  using Taker = std::function<void(std::unique_ptr<vhca::ConnectRequest>)>;

  SetupProcess(base::sim::SimHost& process, const char* ip, bool port_faults)
      : host(process), reactor(std::move(*base::Reactor::create(process, {.name = "r"}))) {
    host.drive(*reactor);
    auto port = port_faults ? std::make_shared<vhca::soft::Port>() : nullptr;
    auto wire = std::make_unique<vhca::soft::tcp::TcpWire>(host, ip, std::move(port));
    wire->watch_link(*reactor);
    device = std::move(*vhca::soft::SoftDevice::create(host, *reactor, "tcp0", std::move(wire),
                                                       kRegistrationsMax));
    pd = std::move(*device->alloc_pd());
  }

  void listen(const vhca::Address& address, Taker taker) {
    taker_ = std::move(taker);
    listener = std::move(*device->listen(*reactor, address, kBacklog));
    pause(false);
  }
  /// Takes no request, but for one that it waits for.
  void pause(bool on) {
    paused = on;
    if (!paused && !taking) run(take());
  }
  void run(base::Task<void> task) {
    reactor->spawn(std::move(task));
    reactor->wake();
  }

  std::unique_ptr<SetupLine> make() {
    auto line = std::make_unique<SetupLine>();
    prepare(*line);
    return line;
  }
  /// To INIT, with one receive.
  void prepare(SetupLine& line) {
    line.mr =
        std::move(*pd->reg_mr(line.memory.data(), line.memory.size(), IBV_ACCESS_LOCAL_WRITE));
    line.cq = std::move(*device->create_cq({.capacity = 8}));
    vhca::QpOptions options;
    options.send_cq = options.recv_cq = line.cq.get();
    options.cap = {2, 2, 1, 1, 0};
    line.qp = std::move(*pd->create_qp(options));
    vhca::QpAttr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
    constexpr int kMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    require(line.qp->modify(attr, kMask).ok(), "a new queue pair gets ready");
    line.post_receive();
  }

  base::Task<void> connect(SetupLine& line, vhca::Address to, std::vector<std::byte> private_data,
                           uint64_t timeout_ns) {
    line.begun_ns = host.now_ns();
    line.bound_ns = timeout_ns;
    const vhca::ConnectParameters parameters{.private_data = private_data};
    auto connecting = device->connect(*reactor, *line.qp, std::move(to), parameters, timeout_ns);
    auto result = co_await std::move(connecting);
    if (!result.ok()) {
      line.error = result.error();
    } else {
      line.connection = std::move(result->connection);
      line.refusal = std::move(result->reject_private_data);
    }
    decide(line);
  }
  /// Of `line.request`.
  base::Task<void> accept(SetupLine& line, std::vector<std::byte> private_data,
                          uint64_t timeout_ns) {
    line.begun_ns = host.now_ns();
    line.bound_ns = timeout_ns;
    const vhca::ConnectParameters parameters{.private_data = private_data};
    auto accepting = line.request->accept(*reactor, *line.qp, parameters);
    auto result = co_await reactor->with_timeout(std::move(accepting), timeout_ns);
    if (!result.has_value()) {
      line.error = base::make_error(base::Errc::kTimedOut, "its program gave up");
    } else if (!result->ok()) {
      line.error = result->error();
    } else {
      line.connection = std::move(**result);
    }
    decide(line);
  }

  base::sim::SimHost& host;
  const std::unique_ptr<base::Reactor> reactor;
  std::unique_ptr<vhca::Device> device;
  std::unique_ptr<vhca::Pd> pd;
  std::unique_ptr<vhca::Listener> listener;
  bool paused = false;
  bool taking = false;

 private:
  void decide(SetupLine& line) {
    line.decided = true;
    line.decided_ns = host.now_ns();
  }
  base::Task<void> take() {
    taking = true;
    while (!paused) {
      auto waiting = listener->next();
      auto request = co_await std::move(waiting);
      if (!request.ok()) break;
      taker_(std::move(*request));
    }
    taking = false;
  }

  Taker taker_;
};

}  // namespace braid::fuzz
