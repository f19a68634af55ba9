// SoftQp: making, connecting, states. The queues' work is in requester.cc and responder.cc.
#include "vhca/soft/qp.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>

#include "vhca/qp_state.h"
#include "vhca/soft/qp_queues.h"
#include "vhca/soft/srq.h"

namespace braid::vhca::soft {
namespace {

using base::Errc;
using base::make_error;
using base::Status;

constexpr uint32_t kQpAccessFlags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint8_t kDefaultRnrTimer = 12;  // 0.64 ms
constexpr uint32_t kTakenMax = 2;         // receives of an SRQ that a QP holds at a time
// Between looks whether a peer has ended its last copy: most take microseconds, that of a stopped
// process as long as it pleases.
constexpr uint64_t kCloseWaitMinNs = 20 * base::kMicrosecond;
constexpr uint64_t kCloseWaitMaxNs = 20 * base::kMillisecond;

Status check_cap(const QpCap& cap) {
  const auto check = [](const char* name, uint32_t value, uint32_t max) -> Status {
    if (value <= max) return base::ok_status();
    return make_error(Errc::kInvalid, "QP with {} {}: the device allows {}", name, value, max);
  };
  BRAID_CHECK(check("max_send_wr", cap.max_send_wr, kMaxQueueDepth));
  BRAID_CHECK(check("max_recv_wr", cap.max_recv_wr, kMaxQueueDepth));
  BRAID_CHECK(check("max_send_sge", cap.max_send_sge, kMaxSge));
  BRAID_CHECK(check("max_recv_sge", cap.max_recv_sge, kMaxSge));
  return check("max_inline_data", cap.max_inline_data, kMaxInline);
}

/// What is asked, and at least one of each; of receives none if they are an SRQ's.
QpCap usable_cap(const QpOptions& options) {
  QpCap cap = options.cap;
  cap.max_send_wr = std::max(cap.max_send_wr, 1u);
  cap.max_send_sge = std::max(cap.max_send_sge, 1u);
  const uint32_t least = options.srq == nullptr ? 1 : 0;
  cap.max_recv_wr = options.srq == nullptr ? std::max(cap.max_recv_wr, least) : 0;
  cap.max_recv_sge = options.srq == nullptr ? std::max(cap.max_recv_sge, least) : 0;
  return cap;
}

Status check_srq(const QpOptions& options, const SoftDevice& device) {
  if (options.srq == nullptr) return base::ok_status();
  const auto& srq = static_cast<const SoftSrq&>(*options.srq);
  if (&srq.device() != &device) {
    return make_error(Errc::kInvalid, "the SRQ of a QP belongs to another device");
  }
  if (options.td != nullptr || !srq.one_thread()) return base::ok_status();
  return make_error(Errc::kInvalid,
                    "a QP without thread domain cannot use an SRQ that is promised to one thread");
}

Status check_bound(const char* name, uint64_t value, uint64_t max) {
  if (value <= max) return base::ok_status();
  return make_error(Errc::kInvalid, "QP attribute {} is {}: at most {}", name, value, max);
}

}  // namespace

base::Result<std::unique_ptr<Qp>> SoftQp::create(SoftPd& pd, const QpOptions& options) {
  if (options.send_cq == nullptr || options.recv_cq == nullptr) {
    return make_error(Errc::kInvalid, "a QP needs a send CQ and a receive CQ");
  }
  BRAID_CHECK(check_cap(options.cap));
  BRAID_CHECK(check_srq(options, pd.device()));
  for (const Cq* cq : {options.send_cq, options.recv_cq}) {
    if (options.td == nullptr && static_cast<const SoftCq*>(cq)->one_thread()) {
      return make_error(
          Errc::kInvalid,
          "a QP without thread domain cannot use a CQ that is promised to one thread");
    }
  }
  const uint32_t number = pd.device().wire().allocate_qp_number();
  if (number == 0) return make_error(Errc::kNoMemory, "the host has no QP number left");
  return std::unique_ptr<Qp>(new SoftQp(pd, options, number));
}

SoftQp::SoftQp(SoftPd& pd, const QpOptions& options, uint32_t number)
    : lock_(options.td == nullptr),
      signal_all_(options.signal_all),
      send_cq_(static_cast<SoftCq*>(options.send_cq)),
      recv_cq_(static_cast<SoftCq*>(options.recv_cq)),
      srq_(static_cast<SoftSrq*>(options.srq)),
      mr_table_(pd.device().mr_table()),
      number_(number),
      pd_id_(pd.id()),
      receive_pd_id_(srq_ != nullptr ? srq_->pd_id() : pd_id_),
      cap_(usable_cap(options)),
      sq_mask_(std::bit_ceil(cap_.max_send_wr) - 1),
      td_(options.td),
      posts_with_poll_(options.posts_with_poll),
      longest_receive_bytes_(options.longest_receive_bytes),
      sq_stride_bytes_(sq_stride_bytes(cap_)),
      sq_(std::make_unique_for_overwrite<std::byte[]>((sq_mask_ + 1ull) * sq_stride_bytes_)),
      rq_(srq_ != nullptr ? RecvRing(kTakenMax, srq_->max_sge())
                          : RecvRing(cap_.max_recv_wr, cap_.max_recv_sge)),
      device_(pd.device()) {
  attr_.min_rnr_timer = kDefaultRnrTimer;
  if (srq_ != nullptr) srq_->attach();
  send_cq_->attach(*this);
  recv_cq_->attach(*this);
  if (lock_.enabled()) shared_id_ = device_.own_threads().add(lock_);
}

SoftQp::~SoftQp() {
  std::unique_ptr<Link> link;
  {
    const std::lock_guard guard(lock_);
    enter_reset("destroyed");
    link = take_link();
  }
  link.reset();  // nobody calls from its channel any more
  device_.stall_clock().forget(*this);
  send_cq_->detach(*this);
  recv_cq_->detach(*this);
  if (lock_.enabled()) device_.own_threads().remove(shared_id_);
  if (srq_ != nullptr) srq_->detach();
  device_.wire().release_qp_number(number_);
}

// --- connecting

EndInfo SoftQp::info() const {
  const std::lock_guard guard(lock_);
  EndInfo info;
  info.number = number_;
  info.pd = pd_id_;
  info.access = static_cast<uint32_t>(attr_.qp_access_flags);
  info.min_rnr_timer = attr_.min_rnr_timer;
  info.max_recv_wr = cap_.max_recv_wr;
  info.max_recv_sge = srq_ != nullptr ? srq_->max_sge() : cap_.max_recv_sge;
  info.max_send_wr = cap_.max_send_wr;
  info.longest_receive_bytes = longest_receive_bytes_;
  info.shares_receives = srq_ != nullptr;
  SoftCompChannel* const recv_channel = recv_cq_->channel();
  SoftCompChannel* const send_channel = send_cq_->channel();
  if (recv_channel != nullptr) info.event = &recv_channel->event();
  if (send_channel != nullptr) info.send_event = &send_channel->event();
  info.one_thread = !lock_.enabled();
  return info;
}

Status SoftQp::establish(std::unique_ptr<Link> link, uint32_t peer_qp_number,
                         const ConnectParameters& parameters) {
  const std::lock_guard guard(lock_);
  if (state_ == IBV_QPS_RESET) {
    QpAttr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (parameters.responder_resources > 0) {
      init.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
    BRAID_CHECK(
        modify_locked(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  }
  if (state_ != IBV_QPS_INIT) {
    return make_error(Errc::kInvalid, "a QP must be in RESET or INIT to be connected, not in {}",
                      qp_state_text(state_));
  }
  QpAttr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_4096;
  attr.dest_qp_num = peer_qp_number;
  attr.max_dest_rd_atomic = parameters.responder_resources;
  attr.min_rnr_timer = attr_.min_rnr_timer;
  attr.ah_attr.port_num = attr_.port_num;
  constexpr int kMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  BRAID_CHECK(check_values(attr, kMask));
  parameters_ = parameters;
  parameters_.private_data = {};
  link_ = std::move(link);
  return modify_locked(attr, kMask);
}

void SoftQp::give_link(std::unique_ptr<Link> link) {
  const std::lock_guard guard(lock_);
  link_ = std::move(link);
}

Status SoftQp::start_sending() {
  const std::lock_guard guard(lock_);
  return start_sending_locked();
}

Status SoftQp::start_sending_locked() {
  QpAttr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = parameters_.ack_timeout;
  attr.retry_cnt = parameters_.retry_count;
  attr.rnr_retry = parameters_.rnr_retry_count;
  attr.max_rd_atomic = parameters_.initiator_depth;
  return modify_locked(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void SoftQp::attach_link(std::unique_ptr<Link> link) {
  link_ = std::move(link);
  update_needs_progress();
  link_->qp_changed(remote_access(), attr_.min_rnr_timer);
  if (direct_link_ == nullptr) return;
  for (uint64_t at = rq_tail_; at != rq_head_; ++at) tell_of_receive(rq_.at(at));
  // The CQ's arm() looks the other way round: one of the two sees the other.
  if (send_cq_->armed(std::memory_order_seq_cst) && direct_link_->arm_sends(true)) {
    send_cq_->link_was_armed();
  }
  if (recv_cq_->armed(std::memory_order_seq_cst)) {
    direct_link_->arm(true, recv_cq_->armed_solicited_only());
    recv_cq_->link_was_armed();
    wake();  // what the peer did before it saw us armed
  }
}

/// What the peer may do. Without responder resources that is nothing that returns data.
uint32_t SoftQp::remote_access() const {
  const auto access = static_cast<uint32_t>(attr_.qp_access_flags);
  if (attr_.max_dest_rd_atomic != 0) return access;
  return access & ~uint32_t{IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
}

void SoftQp::update_needs_progress() {
  const auto link_if = [this](LinkFamily family) {
    return link_ != nullptr && link_->family == family ? link_.get() : nullptr;
  };
  direct_link_ = link_if(LinkFamily::kDirect);
  stream_link_ = link_if(LinkFamily::kStream);
  const bool live = connected_locked();
  const bool polled = direct_link_ != nullptr || stream_link_ != nullptr;
  const bool stalled = stall_ != Stall::kNone;
  signals_unnamed_.store((live && direct_link_ != nullptr) || stalled, std::memory_order_relaxed);
  needs_progress_.store((live && polled) || stalled, std::memory_order_seq_cst);
}

void SoftQp::broken() {
  const std::lock_guard guard(lock_);
  broken_locked();
}

void SoftQp::broken_locked() {
  if (state_ == IBV_QPS_RESET || state_ == IBV_QPS_ERR) return;
  if (done_ != head_) {
    fail_at(done_, IBV_WC_RETRY_EXC_ERR);
  } else {
    enter_error("the peer or the way to it is gone");
  }
}

void SoftQp::disconnected() {
  const std::lock_guard guard(lock_);
  disconnected_locked();
  if (link_ != nullptr) link_->hang_up();
}

void SoftQp::disconnected_locked() {
  if (state_ != IBV_QPS_RESET && state_ != IBV_QPS_ERR) enter_error("disconnected");
}

void SoftQp::move() {
  const std::lock_guard guard(lock_);
  if (stream_link_ != nullptr) stream_link_->progress(*this, /*woken=*/true);
}

bool SoftQp::holds_posts() const {
  const std::lock_guard guard(lock_);
  return posts_with_poll_ && stream_link_ != nullptr;
}

bool SoftQp::shares_fate() const {
  const std::lock_guard guard(lock_);
  return link_ != nullptr && stream_link_ == nullptr;
}

void SoftQp::send_posted() {
  const std::lock_guard guard(lock_);
  if (stream_link_ != nullptr) stream_link_->flush(*this);
}

uint64_t SoftQp::arrived_bytes() const {
  const std::lock_guard guard(lock_);
  return stream_link_ != nullptr ? stream_link_->arrived_bytes() : 0;
}

void SoftQp::share_wire_budget(std::shared_ptr<WireBudget> budget) {
  const std::lock_guard guard(lock_);
  if (stream_link_ != nullptr) stream_link_->share_wire_budget(std::move(budget));
}

void SoftQp::wake() {
  SoftCompChannel* const recv_channel = recv_cq_->channel();
  SoftCompChannel* const send_channel = send_cq_->channel();
  if (recv_channel != nullptr) recv_channel->event().signal();
  if (send_channel != nullptr && send_channel != recv_channel) send_channel->event().signal();
}

// --- for SoftCq and the stall clock

uint32_t SoftQp::progress(uint32_t budget, const SoftCq& cq) {
  const std::lock_guard guard(lock_);
  uint32_t count = 0;
  if (&cq == recv_cq_ && direct_link_ != nullptr) count = drain_arrivals(budget);
  // A poll of either CQ is enough; that of the send CQ alone counts while something is to complete.
  if (stream_link_ != nullptr && (&cq == recv_cq_ || done_ != head_)) {
    stream_link_->progress(*this, /*woken=*/false);
  }
  if (stall_ == Stall::kNone) [[likely]]
    return count;
  if (stall_ == Stall::kNoRoom || device_.host().now_ns() >= retry_at_ns_) try_again();
  return count;
}

bool SoftQp::arm_link(bool armed, bool solicited_only, const SoftCq& cq) {
  const std::lock_guard guard(lock_);
  // Who sleeps does not try again by polling.
  if (armed && stall_ != Stall::kNone) device_.stall_clock().watch(*this, retry_at_ns_);
  if (stream_link_ != nullptr && state_ != IBV_QPS_ERR) {
    if (armed) stream_link_->flush(*this);     // what was posted since the last poll
    stream_link_->arm(armed, solicited_only);  // sees at once what came before
    return false;
  }
  if (direct_link_ == nullptr || state_ == IBV_QPS_ERR) return false;
  bool told = &cq == send_cq_ && direct_link_->arm_sends(armed);
  if (&cq == recv_cq_) {
    direct_link_->arm(armed, solicited_only);
    told = true;
  }
  return told;
}

void SoftQp::stall_over() {
  if (!lock_.enabled()) {
    wake();  // only the owner's thread may touch the queues
    return;
  }
  const std::lock_guard guard(lock_);
  if (stall_ == Stall::kNone) return;
  if (device_.host().now_ns() < retry_at_ns_) {
    device_.stall_clock().watch(*this, retry_at_ns_);
    return;
  }
  try_again();
}

void SoftQp::try_again() {
  if (stall_ == Stall::kPeerCopies) return close_link();
  end_stall();
  progress_sends();
}

// --- states

Status SoftQp::modify(const QpAttr& attr, int mask) {
  std::unique_ptr<Link> former;  // ends after the guard
  const std::lock_guard guard(lock_);
  BRAID_CHECK(modify_locked(attr, mask));
  if (state_ == IBV_QPS_RESET) former = take_link();
  return base::ok_status();
}

Status SoftQp::modify_locked(const QpAttr& attr, int mask) {
  ibv_qp_state next = state_;
  BRAID_CHECK(check_qp_transition(state_, attr, mask, next));
  BRAID_CHECK(check_values(attr, mask));
  if (state_ == IBV_QPS_INIT && next == IBV_QPS_RTR && link_ == nullptr) {
    return make_error(Errc::kNotSupported,
                      "QP {:#x} to RTR with peer {:#x}: the software HCA connects QPs through its "
                      "connection manager only, not by numbers that programs exchange",
                      number_, attr.dest_qp_num);
  }
  apply(attr, mask);
  if (next == state_) return base::ok_status();
  if (next == IBV_QPS_RESET) {
    enter_reset("modified");
  } else if (next == IBV_QPS_ERR) {
    enter_error("modified");
  } else if (next == IBV_QPS_RTR) {
    set_state(next, "modified");
    attach_link(std::move(link_));
  } else if (next == IBV_QPS_SQD) {
    set_state(next, "modified");
    drain_end_ = sent_ + (stall_ != Stall::kNone ? 1 : 0);
    tell_drained_ = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr.en_sqd_async_notify != 0;
    check_drained();
  } else {
    set_state(next, "modified");
    tell_drained_ = false;
    rnr_left_ = attr_.rnr_retry;
    if (next == IBV_QPS_RTS) progress_sends();
  }
  return base::ok_status();
}

/// In SQD: once all is finished that had begun before.
void SoftQp::check_drained() {
  if (state_ != IBV_QPS_SQD || done_ < drain_end_ || !std::exchange(tell_drained_, false)) return;
  device_.async_events().raise(drained_event_, {.type = IBV_EVENT_SQ_DRAINED, .qp = this});
}

/// Of a QP that is connected: its link goes where the connection manager took it.
Status SoftQp::check_way(const QpAttr& attr, int mask) const {
  const bool port = (mask & IBV_QP_PORT) != 0 && attr.port_num != attr_.port_num;
  const ibv_ah_attr& now = attr_.ah_attr;
  const ibv_ah_attr& then = attr.ah_attr;
  const bool av =
      (mask & IBV_QP_AV) != 0 &&
      (then.port_num != now.port_num || then.dlid != now.dlid || then.is_global != now.is_global ||
       std::memcmp(&then.grh.dgid, &now.grh.dgid, sizeof now.grh.dgid) != 0);
  if (!port && !av) return base::ok_status();
  return make_error(Errc::kNotSupported,
                    "another {} of QP {:#x}: the software HCA keeps a connection's way",
                    qp_attr_mask_text((port ? IBV_QP_PORT : 0) | (av ? IBV_QP_AV : 0)), number_);
}

Status SoftQp::check_values(const QpAttr& attr, int mask) const {
  if (state_ == IBV_QPS_SQD) BRAID_CHECK(check_way(attr, mask));
  if ((mask & IBV_QP_ALT_PATH) != 0 ||
      ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attr.path_mig_state != IBV_MIG_MIGRATED)) {
    return make_error(Errc::kNotSupported, "the software HCA has no {}",
                      qp_attr_mask_text(mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)));
  }
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
    const auto unknown = static_cast<uint32_t>(attr.qp_access_flags) & ~kQpAccessFlags;
    if (unknown != 0) {
      return make_error(Errc::kInvalid, "QP access flags {:#x} contain {:#x}, which no QP has",
                        static_cast<uint32_t>(attr.qp_access_flags), unknown);
    }
  }
  if ((mask & IBV_QP_PORT) != 0) {
    const uint8_t ports = device_.wire().port_count();
    if (attr.port_num < 1 || attr.port_num > ports) {
      return make_error(Errc::kInvalid, "QP port {}: the device has ports 1 to {}", attr.port_num,
                        ports);
    }
  }
  if ((mask & IBV_QP_PATH_MTU) != 0 &&
      (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096)) {
    return make_error(Errc::kInvalid, "QP path MTU code {}: must be 1 to 5",
                      static_cast<int>(attr.path_mtu));
  }
  const auto bound = [&](int bit, const char* name, uint64_t value, uint64_t max) -> Status {
    return (mask & bit) != 0 ? check_bound(name, value, max) : base::ok_status();
  };
  BRAID_CHECK(bound(IBV_QP_PKEY_INDEX, "pkey_index", attr.pkey_index, 0));
  BRAID_CHECK(bound(IBV_QP_DEST_QPN, "dest_qp_num", attr.dest_qp_num, 0xffffff));
  BRAID_CHECK(bound(IBV_QP_RQ_PSN, "rq_psn", attr.rq_psn, 0xffffff));
  BRAID_CHECK(bound(IBV_QP_SQ_PSN, "sq_psn", attr.sq_psn, 0xffffff));
  BRAID_CHECK(bound(IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", attr.min_rnr_timer, 31));
  BRAID_CHECK(bound(IBV_QP_TIMEOUT, "timeout", attr.timeout, 31));
  BRAID_CHECK(bound(IBV_QP_RETRY_CNT, "retry_cnt", attr.retry_cnt, 7));
  BRAID_CHECK(bound(IBV_QP_RNR_RETRY, "rnr_retry", attr.rnr_retry, 7));
  BRAID_CHECK(
      bound(IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", attr.max_rd_atomic, kMaxReadsOutstanding));
  return bound(IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr.max_dest_rd_atomic,
               kMaxReadsOutstanding);
}

void SoftQp::apply(const QpAttr& attr, int mask) {
  const auto take = [&](int bit, auto QpAttr::*member) {
    if ((mask & bit) != 0) attr_.*member = attr.*member;
  };
  take(IBV_QP_ACCESS_FLAGS, &QpAttr::qp_access_flags);
  take(IBV_QP_PKEY_INDEX, &QpAttr::pkey_index);
  take(IBV_QP_PORT, &QpAttr::port_num);
  take(IBV_QP_AV, &QpAttr::ah_attr);
  take(IBV_QP_PATH_MTU, &QpAttr::path_mtu);
  take(IBV_QP_DEST_QPN, &QpAttr::dest_qp_num);
  take(IBV_QP_RQ_PSN, &QpAttr::rq_psn);
  take(IBV_QP_SQ_PSN, &QpAttr::sq_psn);
  take(IBV_QP_MIN_RNR_TIMER, &QpAttr::min_rnr_timer);
  take(IBV_QP_TIMEOUT, &QpAttr::timeout);
  take(IBV_QP_RETRY_CNT, &QpAttr::retry_cnt);
  take(IBV_QP_RNR_RETRY, &QpAttr::rnr_retry);
  take(IBV_QP_MAX_QP_RD_ATOMIC, &QpAttr::max_rd_atomic);
  take(IBV_QP_MAX_DEST_RD_ATOMIC, &QpAttr::max_dest_rd_atomic);
  constexpr int kPublished = IBV_QP_ACCESS_FLAGS | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (link_ != nullptr && (mask & kPublished) != 0) {
    link_->qp_changed(remote_access(), attr_.min_rnr_timer);
  }
  if (link_ != nullptr && (mask & (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT)) != 0) {
    link_->retries_changed(attr_.timeout, attr_.retry_cnt);
  }
}

QpOptions SoftQp::options() const {
  return {.send_cq = send_cq_,
          .recv_cq = recv_cq_,
          .cap = cap_,
          .signal_all = signal_all_,
          .srq = srq_,
          .td = td_,
          .posts_with_poll = posts_with_poll_,
          .longest_receive_bytes = longest_receive_bytes_};
}

QpAttr SoftQp::query() const {
  const std::lock_guard guard(lock_);
  QpAttr attr = attr_;
  attr.sq_draining = state_ == IBV_QPS_SQD && done_ < drain_end_ ? 1 : 0;
  attr.qp_state = attr.cur_qp_state = state_;
  attr.path_mig_state = IBV_MIG_MIGRATED;
  attr.cap = cap_;
  return attr;
}

void SoftQp::set_state(ibv_qp_state next, std::string_view cause) {
  device_.host().log().debug("qp {:#x}: {} to {}: {}", number_, qp_state_text(state_),
                             qp_state_text(next), cause);
  state_ = next;
  update_needs_progress();
}

void SoftQp::enter_error(std::string_view cause) {
  stall_ = Stall::kNone;
  close_wait_ns_ = kCloseWaitMinNs;
  set_state(IBV_QPS_ERR, cause);
  close_link();
}

/// To ERR by what no completion tells.
void SoftQp::fail(ibv_event_type event, std::string_view cause) {
  enter_error(cause);
  device_.async_events().raise(failure_event_, {.type = event, .qp = this});
}

bool SoftQp::connected() const {
  const std::lock_guard guard(lock_);
  return connected_locked();
}

void SoftQp::fail_by_itself(std::string_view cause) {
  const std::lock_guard guard(lock_);
  if (connected_locked()) fail(IBV_EVENT_QP_FATAL, cause);
}

/// In ERR. Nothing is reported before the peer has let go of our memory: who sees a failed or
/// flushed completion may reuse the buffer.
void SoftQp::close_link() {
  if (link_ != nullptr && !link_->close()) {
    stall(Stall::kPeerCopies, close_wait_ns_);
    close_wait_ns_ = std::min(2 * close_wait_ns_, kCloseWaitMaxNs);
    return;
  }
  end_stall();
  flush_sends();
  flush_receives();
  if (srq_ != nullptr) {
    device_.async_events().raise(last_receive_event_,
                                 {.type = IBV_EVENT_QP_LAST_WQE_REACHED, .qp = this});
  }
  send_failure_ = receive_failure_ = IBV_WC_WR_FLUSH_ERR;
}

/// Who calls this takes the link, too.
void SoftQp::enter_reset(std::string_view cause) {
  stall_ = Stall::kNone;
  send_failure_ = receive_failure_ = IBV_WC_WR_FLUSH_ERR;
  if (link_ != nullptr) (void)link_->close();
  device_.async_events().forget(failure_event_);
  for (AsyncNode* event : {&last_receive_event_, &drained_event_, &established_event_}) {
    device_.async_events().forget(*event);
  }
  tell_drained_ = heard_of_peer_ = false;
  invalidation_.reset();
  if (std::exchange(binds_, false)) mr_table_.unbind_windows_of_qp(number_);
  if (srq_ != nullptr) return_receives();
  set_state(IBV_QPS_RESET, cause);
  head_ = sent_ = done_ = tail_ = locals_sent_ = 0;
  rq_head_ = rq_tail_ = 0;
  expected_ = 0;
  atomics_executed_ = 0;
  reads_outstanding_ = 0;
  const uint8_t rnr_timer = kDefaultRnrTimer;
  attr_ = {};
  attr_.min_rnr_timer = rnr_timer;
  send_cq_->drop_completions(number_);
  if (recv_cq_ != send_cq_) recv_cq_->drop_completions(number_);
}

/// To be ended without the lock: a link waits for whoever is calling us from its channel, and that
/// one may be waiting for the lock.
std::unique_ptr<Link> SoftQp::take_link() {
  std::unique_ptr<Link> link = std::move(link_);
  update_needs_progress();
  return link;
}

}  // namespace braid::vhca::soft
