// SoftQp, memory windows: the work requests that change the device's own table of keys.
#include "vhca/soft/qp_queues.h"
#include "vhca/soft/remote_check.h"

namespace braid::vhca::soft {

/// BIND_MW and LOCAL_INV, checked. They take their turn in the send queue; the program may free the
/// window's and the memory's objects before it comes.
int SoftQp::post_local(const SendWr& wr) {
  const bool bind = wr.opcode == IBV_WR_BIND_MW;
  SqEntry& entry = sq_entry(head_++);
  entry = {.wr_id = wr.wr_id,
           .rkey = bind ? wr.bind_mw.rkey : wr.invalidate_rkey,
           .opcode = static_cast<uint8_t>(wr.opcode),
           .signaled = signal_all_ || (wr.send_flags & IBV_SEND_SIGNALED) != 0,
           .fence = (wr.send_flags & IBV_SEND_FENCE) != 0};
  if (bind) {
    const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
    entry.remote_address = info.addr;
    entry.compare_add = info.length;
    entry.swap = uint64_t{info.mw_access_flags} << 32 | info.mr->lkey;
    if (wr.bind_mw.mw->rkey >> kKeyLowBits != wr.bind_mw.rkey >> kKeyLowBits) {
      entry.status = IBV_WC_MW_BIND_ERR;
    }
  }
  if (stream_link_ == nullptr) progress_sends();  // else with what else is posted
  return 0;
}

Execution SoftQp::run_local(const SqEntry& entry) {
  if (static_cast<ibv_wr_opcode>(entry.opcode) == IBV_WR_LOCAL_INV) {
    return invalidate_local(entry.rkey);
  }
  const bool bound = mr_table_.bind({.key = entry.rkey,
                                     .pd = pd_id_,
                                     .qp = number_,
                                     .mr_key = static_cast<uint32_t>(entry.swap),
                                     .access = static_cast<uint32_t>(entry.swap >> 32),
                                     .address = entry.remote_address,
                                     .length = entry.compare_add});
  if (!bound) return {.outcome = Outcome::kFailed, .status = IBV_WC_MW_BIND_ERR};
  binds_ = true;
  return {};
}

/// Who sees the completion may use the memory for something else: copies that resolved the key have
/// ended by then. While one has not, the request comes again (kFull).
Execution SoftQp::invalidate_local(uint32_t key) {
  if (invalidation_ == nullptr) {
    if (!mr_table_.invalidate(key, number_)) {
      return {.outcome = Outcome::kFailed, .status = IBV_WC_LOC_QP_OP_ERR};
    }
    invalidation_ = link_->fence_window(key);
  }
  if (invalidation_ != nullptr && !invalidation_->passed()) return {.outcome = Outcome::kFull};
  invalidation_.reset();
  mr_table_.fenced(key);
  return {};
}

}  // namespace braid::vhca::soft
