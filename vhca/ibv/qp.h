// Reliable-connected queue pairs of an RDMA device. Private to vhca/ibv.
//
// Threads: any. Posts go straight to the driver.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <mutex>

#include "vhca/device.h"
#include "vhca/ibv/cq.h"
#include "vhca/ibv/library.h"

namespace braid::vhca::ibv {

class IbvDevice;
class IbvPd;
class IbvQp;

/// A connection's hold on its QP, which may be destroyed before it.
class QpHold {
 public:
  /// QP to ERR, if it is still there and was connected.
  void fence();

 private:
  friend class IbvQp;
  std::mutex lock_;
  IbvQp* qp_ = nullptr;
};

class IbvQp final : public Qp {
 public:
  static base::Result<std::unique_ptr<Qp>> create(IbvPd& pd, const QpOptions& options);
  ~IbvQp() override;

  int post_send(const SendWr* wr, const SendWr** bad) override;
  int post_recv(const RecvWr* wr, const RecvWr** bad) override;
  base::Status modify(const QpAttr& attr, int mask) override;
  QpAttr query() const override;
  QpOptions options() const override;
  uint32_t number() const override { return qp_->qp_num; }

  IbvDevice& device() { return device_; }
  ibv_qp* verbs() { return qp_; }
  /// Holds of former connections end here: they can no longer fence.
  std::shared_ptr<QpHold> new_hold();
  ibv_qp_state state() const { return query().qp_state; }

 private:
  IbvQp(IbvDevice& device, const QpOptions& options);
  void flush_again();
  void drop_completions();
  void end_hold();

  IbvDevice& device_;
  IbvCq& send_cq_;
  IbvCq& recv_cq_;
  const QpOptions made_with_;
  ibv_qp* qp_ = nullptr;
  std::shared_ptr<QpHold> hold_;
};

}  // namespace braid::vhca::ibv
