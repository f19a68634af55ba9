// Shared receive queues of an RDMA device. Private to vhca/ibv. Threads: any.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "vhca/device.h"

namespace braid::vhca::ibv {

class IbvDevice;
class IbvPd;

class IbvSrq final : public Srq {
 public:
  static base::Result<std::unique_ptr<Srq>> create(IbvPd& pd, const SrqOptions& options);
  ~IbvSrq() override;

  int post_recv(const RecvWr* wr, const RecvWr** bad) override;
  base::Status modify(const SrqAttr& attr, int mask) override;
  SrqAttr query() const override;
  ibv_srq* verbs() { return srq_; }

 private:
  explicit IbvSrq(IbvDevice& device) : device_(device) {}

  IbvDevice& device_;
  ibv_srq* srq_ = nullptr;
};

}  // namespace braid::vhca::ibv
