#include "vhca/ibv/srq.h"

#include <cerrno>
#include <cstdlib>

#include "vhca/ibv/device.h"
#include "vhca/ibv/words.h"

namespace braid::vhca::ibv {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

Result<std::unique_ptr<Srq>> IbvSrq::create(IbvPd& pd, const SrqOptions& options) {
  IbvDevice& device = pd.device();
  const DeviceAttr limits = device.query();
  const auto within = [](uint32_t value, int max) { return value <= static_cast<uint32_t>(max); };
  if (!within(options.max_wr, limits.max_srq_wr) || !within(options.max_sge, limits.max_srq_sge)) {
    return make_error(Errc::kInvalid, "an SRQ of {} receives of {} SGEs: {} allows {} of {}",
                      options.max_wr, options.max_sge, device.info().name, limits.max_srq_wr,
                      limits.max_srq_sge);
  }
  std::unique_ptr<IbvSrq> srq(new IbvSrq(device));
  ibv_srq_init_attr init{};
  init.srq_context = srq.get();
  init.attr.max_wr = options.max_wr;
  init.attr.max_sge = options.max_sge;
  srq->srq_ = device.library().verbs.create_srq(pd.verbs(), &init);
  if (srq->srq_ == nullptr) {
    return verbs_error(errno, fmt::format("creating an SRQ of {} receives", options.max_wr));
  }
  return std::unique_ptr<Srq>(std::move(srq));
}

IbvSrq::~IbvSrq() {
  if (srq_ == nullptr) return;
  device_.forget_events<Srq>(&AsyncEvent::srq, *this, [this] {
    // A QP that still uses it would be a bug of its owner.
    BRAID_ASSERT(device_.library().verbs.destroy_srq(srq_) != EBUSY);
  });
}

int IbvSrq::post_recv(const RecvWr* wr, const RecvWr** bad) {
  const RecvWr* nobody_asks = nullptr;
  if (bad == nullptr) bad = &nobody_asks;  // drivers write it
  return std::abs(
      ibv_post_srq_recv(srq_, const_cast<ibv_recv_wr*>(wr), const_cast<ibv_recv_wr**>(bad)));
}

Status IbvSrq::modify(const SrqAttr& attr, int mask) {
  ibv_srq_attr copy = attr;
  const int err = device_.library().verbs.modify_srq(srq_, &copy, mask);
  if (err == 0) return base::ok_status();
  return verbs_error(
      err, fmt::format("modifying an SRQ to {} receives, limit {}", attr.max_wr, attr.srq_limit));
}

SrqAttr IbvSrq::query() const {
  SrqAttr attr{};
  // Fails only if the device is gone, and then nothing works any more.
  (void)device_.library().verbs.query_srq(srq_, &attr);
  return attr;
}

}  // namespace braid::vhca::ibv
