// SoftSrq: receives that QPs of the software HCA share. Private to its process: peers reach it
// through their QPs only.
//
// Threads: any (its lock stands below those of QPs); with a Td that thread, without a lock.
#pragma once

#include <cstdint>

#include "vhca/device.h"
#include "vhca/soft/async_events.h"
#include "vhca/soft/recv_ring.h"
#include "vhca/soft/spin_lock.h"

namespace braid::vhca::soft {

class SoftDevice;
class SoftPd;

class SoftSrq final : public Srq {
 public:
  static base::Result<std::unique_ptr<Srq>> create(SoftPd& pd, const SrqOptions& options);
  ~SoftSrq() override;
  SoftSrq(const SoftSrq&) = delete;
  SoftSrq& operator=(const SoftSrq&) = delete;

  int post_recv(const RecvWr* wr, const RecvWr** bad) override;
  base::Status modify(const SrqAttr& attr, int mask) override;
  SrqAttr query() const override;

  // --- for SoftQp
  uint32_t pd_id() const { return pd_id_; }
  uint32_t max_sge() const { return max_sge_; }
  const SoftDevice& device() const { return device_; }
  bool one_thread() const { return !lock_.enabled(); }
  void attach();
  void detach();
  /// Copies the oldest receive to `index` of `to` and lends it: its room stays taken until settle()
  /// or give_back(). False: there is none.
  bool take(const RecvRing& to, uint64_t index);
  /// One that was taken has been used up.
  void settle();
  /// One that was taken is the oldest again: no message came for it.
  void give_back(const RecvEntry& entry);

 private:
  SoftSrq(SoftPd& pd, const SrqOptions& options);
  int post_one(const RecvWr& wr);
  uint32_t posted() const { return static_cast<uint32_t>(head_ - tail_); }
  base::Status resize(uint32_t max_wr);
  void check_limit();

  SoftDevice& device_;
  const uint32_t pd_id_;
  const uint32_t max_sge_;
  mutable SpinLock lock_;  // guards all below
  uint32_t max_wr_;
  uint32_t limit_ = 0;  // 0: not armed
  uint32_t lent_ = 0;   // taken, not settled
  uint32_t users_ = 0;  // QPs
  uint64_t head_ = 0;   // posted
  uint64_t tail_ = 0;   // taken
  RecvRing ring_;
  AsyncNode limit_event_;
};

}  // namespace braid::vhca::soft
