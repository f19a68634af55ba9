// For tests: a device whose program misbehaves, a client's or a server's. late() puts other bytes
// where the last RDMA WRITE_WITH_IMM with data went, by the same queue pair and key.
//
// Threads: those of the device's queue pairs; late() on that of the one that it writes by.
#pragma once

#include <memory>
#include <utility>

#include "trs/watched_device.h"

namespace braid::trs::testing {

class LateWriterDevice final : public WatchedDevice {
 public:
  /// What is shorter than `least_bytes` is not data.
  LateWriterDevice(std::unique_ptr<vhca::Device> behind, uint32_t least_bytes)
      : WatchedDevice(std::move(behind)), least_bytes_(least_bytes) {}

  /// `bytes` stay where they are until the queue pair has ended. Once.
  void late(std::byte* bytes, uint32_t length) {
    vhca::Sge piece{reinterpret_cast<uint64_t>(bytes), length, last_.pd->lkey_of(bytes, length)};
    vhca::SendWr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = last_.address;
    wr.wr.rdma.rkey = last_.key;
    const vhca::SendWr* bad = nullptr;
    (void)last_.qp->post_send(&wr, &bad);
  }

 private:
  /// What was written last with data of its own.
  struct Last {
    WatchedPd* pd = nullptr;
    vhca::Qp* qp = nullptr;
    uint64_t address = 0;
    uint32_t key = 0;
  };

  void posts(WatchedPd& pd, vhca::Qp& qp, const vhca::SendWr& wr) override {
    uint64_t bytes = 0;
    for (int i = 0; i < wr.num_sge; ++i) bytes += wr.sg_list[i].length;
    if (wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM && bytes >= least_bytes_)
      last_ = {&pd, &qp, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey};
  }

  const uint32_t least_bytes_;
  Last last_;
};

}  // namespace braid::trs::testing
