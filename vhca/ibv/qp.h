// Reliable-connected queue pairs of an RDMA device. Private to vhca/ibv.
//
// Threads: any. Posts go straight to the driver.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
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

/// The id on which somebody who accepts a connection for a QP waits for its confirmation.
class AcceptingId {
 public:
  void set(rdma_cm_id* id) {
    const std::lock_guard guard(lock_);
    id_ = id;
  }
  /// Tells the CM, if it may not know yet, that the peer sends on the QP.
  void peer_speaks(const CmCalls& cm) {
    const std::lock_guard guard(lock_);
    if (id_ != nullptr) (void)cm.notify(id_, IBV_EVENT_COMM_EST);
  }

 private:
  std::mutex lock_;
  rdma_cm_id* id_ = nullptr;  // null: nobody waits
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
  const std::shared_ptr<AcceptingId>& accepting() const { return accepting_; }

  // --- from the device, which keeps the QP meanwhile
  /// It has put the QP in ERR by itself. Told by whoever polled that, while a reset of the QP by
  /// another thread waits for him: then it is of before the reset, and counts for nothing.
  void device_failed();
  /// The peer has sent on a QP that is in RTR.
  void peer_speaks();

 private:
  IbvQp(IbvDevice& device, const QpOptions& options);
  void wait_for_device() const;
  void flush_again();
  int reset(const QpAttr& attr, int mask);
  int post_with_binds(const SendWr* wr, const SendWr** bad);
  void drop_completions();
  void end_hold();

  IbvDevice& device_;
  IbvCq& send_cq_;
  IbvCq& recv_cq_;
  const QpOptions made_with_;
  ibv_qp* qp_ = nullptr;
  std::shared_ptr<QpHold> hold_;
  std::mutex failure_lock_;          // inside of the device's and of IbvCq::kept_lock_
  bool resetting_ = false;           // failure_lock_
  std::atomic<bool> failed_{false};  // by the device; the library's copy of the state knows not
  const std::shared_ptr<AcceptingId> accepting_ = std::make_shared<AcceptingId>();
};

}  // namespace braid::vhca::ibv
