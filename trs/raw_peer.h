// For tests with a peer that breaks the rules: a device of its own and connections made by hand.
//
// Nothing here runs by itself: the test polls the completion queues. Work requests complete in
// order, each signalled.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "trs/imm.h"
#include "trs/session_rig.h"
#include "trs/wire.h"

namespace braid::trs::testing {

/// One QP with its CQ, and what arrived.
struct RawConnection {
  std::unique_ptr<vhca::Cq> cq;
  std::unique_ptr<vhca::Qp> qp;
  std::unique_ptr<vhca::Connection> connection;
  int reject_errno = 0;
  std::optional<base::Error> error;
  bool decided = false;
  std::vector<vhca::Wc> completions;
  base::Task<void> connecting;  // goes before what it connects

  /// Lost, by completion or by the connection manager.
  bool lost() {
    poll();
    for (const vhca::Wc& wc : completions) {
      if (wc.status != IBV_WC_SUCCESS) return true;
    }
    return connection && connection->disconnected();
  }
  void poll() {
    std::array<vhca::Wc, 16> burst;
    const int count = cq->poll(burst);
    for (int i = 0; i < count; ++i) completions.push_back(burst[static_cast<size_t>(i)]);
  }
  /// The immediates that have arrived.
  std::vector<Imm> immediates() {
    poll();
    std::vector<Imm> all;
    for (const vhca::Wc& wc : completions) {
      const bool arrived = wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
      if (arrived) all.push_back(decode_imm(from_network(wc.imm_data)));
    }
    return all;
  }
};

class RawPeer : public Process {
 public:
  RawPeer(base::sim::SimHost& process, const char* ip, const ProcessSize& its_size = {})
      : Process(process, ip, 1, its_size) {
    pd = std::move(*device->alloc_pd());
    memory.resize(its_size.memory_bytes == 0 ? 1 << 20 : its_size.memory_bytes);
    mr = std::move(*pd->reg_mr(memory.data(), memory.size(),
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  }

  /// A connection with receives of 512 bytes, in memory's second half.
  std::unique_ptr<RawConnection> make() {
    auto raw = std::make_unique<RawConnection>();
    raw->cq = std::move(*device->create_cq({}));
    vhca::QpOptions options;
    options.send_cq = raw->cq.get();
    options.recv_cq = raw->cq.get();
    options.signal_all = true;
    raw->qp = std::move(*pd->create_qp(options));
    vhca::QpAttr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    const auto status =
        raw->qp->modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    BRAID_ASSERT(status.ok());
    for (size_t i = 0; i < 64; ++i) post_receive(*raw, i);
    return raw;
  }
  /// Receive number `index`; it is posted already, but for what has been taken.
  void post_receive(RawConnection& raw, size_t index) {
    vhca::Sge piece{};
    piece.addr = reinterpret_cast<uint64_t>(memory.data() + memory.size() / 2 + index * 512);
    piece.length = 512;
    piece.lkey = mr->lkey;
    vhca::RecvWr wr{};
    wr.wr_id = 1000 + index;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    const vhca::RecvWr* bad = nullptr;
    const int refused = raw.qp->post_recv(&wr, &bad);
    BRAID_ASSERT(refused == 0 || may_overrun);
  }
  /// What receive number `index` took.
  std::span<const std::byte> received(size_t index, size_t length) {
    return std::span(memory).subspan(memory.size() / 2 + index * 512, length);
  }

  /// Connects with any bytes as private data. `raw.decided` when it is over.
  void connect(RawConnection& raw, std::vector<std::byte> private_data) {
    raw.connecting = connect_task(raw, std::move(private_data));
    raw.connecting.start();
    home().wake();
  }
  void send(RawConnection& raw, std::span<const std::byte> message) {
    post(raw, IBV_WR_SEND, message, 0, 0, 0);
  }
  void send_imm(RawConnection& raw, std::span<const std::byte> message, uint32_t imm) {
    post(raw, IBV_WR_SEND_WITH_IMM, message, 0, 0, imm);
  }
  void write_imm(RawConnection& raw, std::span<const std::byte> bytes, uint64_t address,
                 uint32_t rkey, uint32_t imm) {
    post(raw, IBV_WR_RDMA_WRITE_WITH_IMM, bytes, address, rkey, imm);
  }

  void write(RawConnection& by, std::span<const std::byte> bytes, uint64_t address, uint32_t rkey) {
    post(by, IBV_WR_RDMA_WRITE, bytes, address, rkey, 0);
  }

  bool may_overrun = false;  // what a full send queue or a lost QP does not take is dropped
  std::unique_ptr<vhca::Pd> pd;
  std::vector<std::byte> memory;
  std::unique_ptr<vhca::Mr> mr;

 private:
  base::Task<void> connect_task(RawConnection& raw, std::vector<std::byte> private_data) {
    vhca::ConnectParameters parameters;
    parameters.private_data = private_data;
    vhca::Address address{kServerIp, kPort};
    auto result = co_await device->connect(home(), *raw.qp, address, parameters, 5 * base::kSecond);
    raw.decided = true;
    if (!result.ok()) {
      raw.error = result.error();
    } else if (result->connection) {
      raw.connection = std::move(result->connection);
    } else {
      auto reject = wire::parse_reject(result->reject_private_data);
      raw.reject_errno = reject.ok() ? *reject : -1;
    }
  }
  void post(RawConnection& raw, ibv_wr_opcode opcode, std::span<const std::byte> bytes,
            uint64_t address, uint32_t rkey, uint32_t imm) {
    BRAID_ASSERT(bytes.size() <= memory.size() / 2);
    if (!bytes.empty() && bytes.data() != memory.data())
      std::memcpy(memory.data(), bytes.data(), bytes.size());
    vhca::Sge piece{};
    piece.addr = reinterpret_cast<uint64_t>(memory.data());
    piece.length = static_cast<uint32_t>(bytes.size());
    piece.lkey = mr->lkey;
    vhca::SendWr wr{};
    wr.opcode = opcode;
    wr.sg_list = &piece;
    wr.num_sge = bytes.empty() ? 0 : 1;
    wr.imm_data = to_network(imm);
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
    const vhca::SendWr* bad = nullptr;
    const int refused = raw.qp->post_send(&wr, &bad);
    BRAID_ASSERT(refused == 0 || may_overrun);
  }
};

}  // namespace braid::trs::testing
