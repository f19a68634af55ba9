// A queue pair in INIT, with what it needs, for the rows below TRS.
//
// In a child only (Process::call). One thread.
#pragma once

#include <memory>

#include "bench/braid_side.h"
#include "vhca/device.h"

namespace braid::bench {

/// Completions of both directions come to one CQ. Peers may write to its memory.
struct QueuePair {
  explicit QueuePair(vhca::Device& device)
      : td(device.create_td()),
        pd(must(device.alloc_pd())),
        cq(must(device.create_cq({.capacity = 256, .td = td.get()}))),
        qp(must(pd->create_qp({.send_cq = cq.get(), .recv_cq = cq.get(), .td = td.get()}))) {
    vhca::QpAttr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAccess;
    must(qp->modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  }
  std::unique_ptr<vhca::Mr> register_memory(std::byte* memory, size_t length_bytes) const {
    return must(pd->reg_mr(memory, length_bytes, kAccess));
  }

  static constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  std::unique_ptr<vhca::Td> td;
  std::unique_ptr<vhca::Pd> pd;
  std::unique_ptr<vhca::Cq> cq;
  std::unique_ptr<vhca::Qp> qp;
};

}  // namespace braid::bench
