#include "vhca/ibv/qp.h"

#include <cerrno>
#include <cstdlib>
#include <thread>

#include "vhca/ibv/device.h"
#include "vhca/ibv/memory.h"
#include "vhca/ibv/srq.h"
#include "vhca/ibv/words.h"
#include "vhca/qp_state.h"

namespace braid::vhca::ibv {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

Status check_cap(const QpCap& cap, const DeviceAttr& device) {
  const auto check = [](const char* name, uint32_t value, int max) -> Status {
    if (value <= static_cast<uint32_t>(max)) return base::ok_status();
    return make_error(Errc::kInvalid, "QP with {} {}: the device allows {}", name, value, max);
  };
  BRAID_CHECK(check("max_send_wr", cap.max_send_wr, device.max_qp_wr));
  BRAID_CHECK(check("max_recv_wr", cap.max_recv_wr, device.max_qp_wr));
  BRAID_CHECK(check("max_send_sge", cap.max_send_sge, device.max_sge));
  return check("max_recv_sge", cap.max_recv_sge, device.max_sge);
}

Status check_cqs(const QpOptions& options) {
  if (options.send_cq == nullptr || options.recv_cq == nullptr) {
    return make_error(Errc::kInvalid, "a QP needs a send CQ and a receive CQ");
  }
  for (const Cq* const cq : {options.send_cq, options.recv_cq}) {
    if (options.td == nullptr && static_cast<const IbvCq*>(cq)->one_thread()) {
      return make_error(Errc::kInvalid,
                        "a QP without a thread domain cannot use a CQ that was made with one");
    }
  }
  return base::ok_status();
}

}  // namespace

void QpHold::fence() {
  const std::lock_guard guard(lock_);
  if (qp_ == nullptr) return;
  QpAttr attr{};
  attr.qp_state = IBV_QPS_ERR;
  (void)qp_->modify(attr, IBV_QP_STATE);  // refused in RESET: nothing can land there
}

IbvQp::IbvQp(IbvDevice& device, const QpOptions& options)
    : device_(device),
      send_cq_(static_cast<IbvCq&>(*options.send_cq)),
      recv_cq_(static_cast<IbvCq&>(*options.recv_cq)),
      made_with_(options) {}

Result<std::unique_ptr<Qp>> IbvQp::create(IbvPd& pd, const QpOptions& options) {
  BRAID_CHECK(check_cqs(options));
  IbvDevice& device = pd.device();
  QpCap cap = options.cap;
  if (options.srq != nullptr) cap.max_recv_wr = cap.max_recv_sge = 0;
  BRAID_CHECK(check_cap(cap, device.query()));
  std::unique_ptr<IbvQp> qp(new IbvQp(device, options));
  ibv_qp_init_attr init{};
  init.qp_context = qp.get();
  init.send_cq = qp->send_cq_.verbs();
  init.recv_cq = qp->recv_cq_.verbs();
  if (options.srq != nullptr) init.srq = static_cast<IbvSrq*>(options.srq)->verbs();
  init.cap = cap;
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = options.signal_all ? 1 : 0;
  qp->qp_ = device.library().verbs.create_qp(pd.verbs(), &init);
  if (qp->qp_ == nullptr) {
    return verbs_error(
        errno,
        fmt::format("creating a QP with {} send and {} receive requests, {} and {} SGEs, {} "
                    "inline bytes",
                    options.cap.max_send_wr, options.cap.max_recv_wr, options.cap.max_send_sge,
                    options.cap.max_recv_sge, options.cap.max_inline_data));
  }
  device.add_qp(*qp);
  return std::unique_ptr<Qp>(std::move(qp));
}

/// Its completions go before its number does: the device may give that to another QP, which
/// completes into the same CQ, before destroying it has returned here. In RESET none are added.
IbvQp::~IbvQp() {
  if (qp_ == nullptr) return;
  device_.remove_qp(number());
  end_hold();
  QpAttr attr{};
  attr.qp_state = IBV_QPS_RESET;
  if (reset(attr, IBV_QP_STATE) != 0) drop_completions();  // the device is gone: nor does it then
  device_.forget_events<Qp>(&AsyncEvent::qp, *this, [this] {
    // What else could it be: a multicast group or a flow still attached, which the seam cannot do.
    BRAID_ASSERT(device_.library().verbs.destroy_qp(qp_) != EBUSY);
  });
}

int IbvQp::post_send(const SendWr* wr, const SendWr** bad) {
  const SendWr* nobody_asks = nullptr;
  if (bad == nullptr) bad = &nobody_asks;  // drivers write it
  // Not every driver looks at the state. This is the library's copy: it does not know of errors,
  // after which posting is allowed anyway.
  if (qp_->state < IBV_QPS_RTS) {
    *bad = wr;
    return EINVAL;
  }
  for (const SendWr* each = wr; each != nullptr; each = each->next) {
    if (each->opcode == IBV_WR_BIND_MW) [[unlikely]]
      return post_with_binds(wr, bad);
  }
  // The library's prototypes want writable requests; drivers only read them.
  return std::abs(ibv_post_send(qp_, const_cast<ibv_send_wr*>(wr), const_cast<ibv_send_wr**>(bad)));
}

/// A bind names our objects, of which the driver knows nothing: one by one, with its own.
int IbvQp::post_with_binds(const SendWr* wr, const SendWr** bad) {
  for (; wr != nullptr; wr = wr->next) {
    // What is of another type is no window of ours.
    const bool ours = wr->opcode == IBV_WR_BIND_MW && wr->bind_mw.mw != nullptr &&
                      wr->bind_mw.mw->type == IBV_MW_TYPE_2;
    IbvMw* const window = ours ? static_cast<IbvMw*>(static_cast<Mw*>(wr->bind_mw.mw)) : nullptr;
    SendWr drivers = *wr;
    int err = 0;
    if (window != nullptr) {
      err = window->translate(*wr, drivers);
    } else if (wr->opcode == IBV_WR_BIND_MW) {
      err = EINVAL;
    }
    drivers.next = nullptr;
    ibv_send_wr* refused = nullptr;
    if (err == 0) err = std::abs(ibv_post_send(qp_, &drivers, &refused));
    if (err != 0) {
      *bad = wr;
      return err;
    }
    if (window != nullptr) window->posted(wr->bind_mw.rkey);
  }
  return 0;
}

int IbvQp::post_recv(const RecvWr* wr, const RecvWr** bad) {
  const RecvWr* nobody_asks = nullptr;
  if (bad == nullptr) bad = &nobody_asks;  // drivers write it
  if (qp_->state == IBV_QPS_RESET || qp_->srq != nullptr) {
    *bad = wr;
    return EINVAL;
  }
  const int err =
      std::abs(ibv_post_recv(qp_, const_cast<ibv_recv_wr*>(wr), const_cast<ibv_recv_wr**>(bad)));
  const bool in_error = qp_->state == IBV_QPS_ERR || failed_.load(std::memory_order_acquire);
  if (err == 0 && in_error) flush_again();
  return err;
}

/// What was posted since, and is not flushed, is flushed now.
void IbvQp::device_failed() {
  const std::lock_guard guard(failure_lock_);
  if (failed_.exchange(true, std::memory_order_acq_rel) || resetting_) return;
  if (qp_->srq != nullptr) return;
  wait_for_device();
  flush_again();
}

/// rxe tells of a receive that failed before it answers its peer, and in ERR that we set it answers
/// nothing: the peer would hear of retries that are used up. A moment later it is in ERR by itself.
void IbvQp::wait_for_device() const {
  constexpr int kQueriesMax = 100;
  for (int i = 0; i < kQueriesMax && state() != IBV_QPS_ERR; ++i) std::this_thread::yield();
}

void IbvQp::peer_speaks() {
  accepting_->peer_speaks(device_.library().cm);
}

/// rxe's driver only writes a receive into the queue that it shares with the kernel: in ERR nobody
/// would look there any more, and flush it.
void IbvQp::flush_again() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  (void)device_.library().verbs.modify_qp(qp_, &attr, IBV_QP_STATE);
}

Status IbvQp::modify(const QpAttr& attr, int mask) {
  // Some drivers take more than verbs allow, and none says what was wrong.
  ibv_qp_state next = IBV_QPS_RESET;
  BRAID_CHECK(check_qp_transition(state(), attr, mask, next));
  ibv_qp_attr copy = attr;
  const int err = next == IBV_QPS_RESET ? reset(attr, mask)
                                        : device_.library().verbs.modify_qp(qp_, &copy, mask);
  if (err != 0) {
    return verbs_error(err, fmt::format("modifying QP {} to {} ({})", number(), qp_state_text(next),
                                        qp_attr_mask_text(mask)));
  }
  if (next == IBV_QPS_RESET) device_.forget_events<Qp>(&AsyncEvent::qp, *this, [] {});
  return base::ok_status();
}

/// Failures that other threads polled before are told before it ends: dropping the completions
/// waits for them.
int IbvQp::reset(const QpAttr& attr, int mask) {
  {
    const std::lock_guard guard(failure_lock_);
    resetting_ = true;
  }
  ibv_qp_attr copy = attr;
  const int err = device_.library().verbs.modify_qp(qp_, &copy, mask);
  if (err == 0) drop_completions();
  const std::lock_guard guard(failure_lock_);
  resetting_ = false;
  if (err == 0) {
    failed_.store(false, std::memory_order_release);
  } else if (failed_.load(std::memory_order_relaxed) && qp_->srq == nullptr) {
    flush_again();  // perhaps kept back meanwhile
  }
  return err;
}

void IbvQp::drop_completions() {
  send_cq_.drop_completions(number());
  recv_cq_.drop_completions(number());
}

QpAttr IbvQp::query() const {
  constexpr int kAll =
      IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
      IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN |
      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PATH_MIG_STATE | IBV_QP_CAP | IBV_QP_DEST_QPN;
  QpAttr attr{};
  ibv_qp_init_attr init{};
  // Fails only if the device is gone, and then nothing works any more.
  if (device_.library().verbs.query_qp(qp_, &attr, kAll, &init) != 0) attr.qp_state = IBV_QPS_ERR;
  attr.cur_qp_state = attr.qp_state;  // rxe leaves it out
  return attr;
}

QpOptions IbvQp::options() const {
  QpOptions options = made_with_;
  options.cap = query().cap;
  return options;
}

std::shared_ptr<QpHold> IbvQp::new_hold() {
  end_hold();
  hold_ = std::make_shared<QpHold>();
  hold_->qp_ = this;
  return hold_;
}

void IbvQp::end_hold() {
  if (!hold_) return;
  const std::lock_guard guard(hold_->lock_);
  hold_->qp_ = nullptr;
}

}  // namespace braid::vhca::ibv
