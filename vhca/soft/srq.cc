#include "vhca/soft/srq.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "vhca/soft/device.h"

namespace braid::vhca::soft {

using base::Errc;
using base::make_error;
using base::Status;

base::Result<std::unique_ptr<Srq>> SoftSrq::create(SoftPd& pd, const SrqOptions& options) {
  if (options.max_wr < 1 || options.max_wr > kMaxQueueDepth || options.max_sge > kMaxSge) {
    return make_error(Errc::kInvalid,
                      "SRQ with max_wr {}, max_sge {}: must be 1 to {}, and at most {}",
                      options.max_wr, options.max_sge, kMaxQueueDepth, kMaxSge);
  }
  return std::unique_ptr<Srq>(new SoftSrq(pd, options));
}

SoftSrq::SoftSrq(SoftPd& pd, const SrqOptions& options)
    : device_(pd.device()),
      pd_id_(pd.id()),
      max_sge_(std::max(options.max_sge, 1u)),
      lock_(options.td == nullptr),
      max_wr_(options.max_wr),
      ring_(options.max_wr, max_sge_) {}

SoftSrq::~SoftSrq() {
  BRAID_ASSERT(users_ == 0);  // its QPs go first
  device_.async_events().forget(limit_event_);
}

int SoftSrq::post_recv(const RecvWr* wr, const RecvWr** bad) {
  const std::lock_guard guard(lock_);
  for (; wr != nullptr; wr = wr->next) {
    if (const int error = post_one(*wr); error != 0) {
      if (bad != nullptr) *bad = wr;
      return error;
    }
  }
  return 0;
}

int SoftSrq::post_one(const RecvWr& wr) {
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > max_sge_) return EINVAL;
  if (posted() + lent_ >= max_wr_) return ENOMEM;
  ring_.write(head_++, wr);
  return 0;
}

Status SoftSrq::modify(const SrqAttr& attr, int mask) {
  constexpr int kKnown = IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT;
  if ((mask & ~kKnown) != 0) {
    return make_error(Errc::kInvalid, "SRQ attribute mask {:#x}: MAX_WR and LIMIT exist", mask);
  }
  const std::lock_guard guard(lock_);
  const uint32_t max_wr = (mask & IBV_SRQ_MAX_WR) != 0 ? attr.max_wr : max_wr_;
  if ((mask & IBV_SRQ_LIMIT) != 0 && attr.srq_limit > max_wr) {
    return make_error(Errc::kInvalid, "SRQ limit {}: at most max_wr, which is {}", attr.srq_limit,
                      max_wr);
  }
  if (max_wr != max_wr_) BRAID_CHECK(resize(max_wr));
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    limit_ = attr.srq_limit;
    check_limit();
  }
  return base::ok_status();
}

Status SoftSrq::resize(uint32_t max_wr) {
  if (max_wr < std::max(posted() + lent_, 1u) || max_wr > kMaxQueueDepth) {
    return make_error(Errc::kInvalid, "SRQ max_wr {}: must be {} (what is posted) to {}", max_wr,
                      std::max(posted() + lent_, 1u), kMaxQueueDepth);
  }
  RecvRing ring(max_wr, max_sge_);
  for (uint64_t at = tail_; at != head_; ++at) ring.copy(at, ring_.at(at));
  ring_ = std::move(ring);
  max_wr_ = max_wr;  // and not below the limit: while that is armed, so many are posted
  BRAID_ASSERT(limit_ <= max_wr_);
  return base::ok_status();
}

SrqAttr SoftSrq::query() const {
  const std::lock_guard guard(lock_);
  return {.max_wr = max_wr_, .max_sge = max_sge_, .srq_limit = limit_};
}

void SoftSrq::check_limit() {
  if (posted() >= limit_) [[likely]]
    return;
  limit_ = 0;
  device_.async_events().raise(limit_event_, {.type = IBV_EVENT_SRQ_LIMIT_REACHED, .srq = this});
}

// --- for SoftQp

void SoftSrq::attach() {
  const std::lock_guard guard(lock_);
  ++users_;
}

void SoftSrq::detach() {
  const std::lock_guard guard(lock_);
  --users_;
}

bool SoftSrq::take(const RecvRing& to, uint64_t index) {
  const std::lock_guard guard(lock_);
  if (head_ == tail_) return false;
  to.copy(index, ring_.at(tail_++));
  ++lent_;
  check_limit();
  return true;
}

void SoftSrq::settle() {
  const std::lock_guard guard(lock_);
  --lent_;
}

void SoftSrq::give_back(const RecvEntry& entry) {
  const std::lock_guard guard(lock_);
  --lent_;
  ring_.copy(--tail_, entry);
}

}  // namespace braid::vhca::soft
