#include "bnbd/client/durability.h"

namespace braid::bnbd::client {

uint64_t DurabilityLedger::acknowledged_by_all() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < queues_; ++i) {
    sum += acknowledged_[i].value.load(std::memory_order_relaxed);
  }
  return sum;
}

base::Errc DurabilityLedger::flushed(const Ticket& ticket) {
  const uint64_t losses = losses_;
  if (losses > ticket.losses_reported) {
    // A flush older than some of the lost writes fails too, but cannot speak for those.
    if (ticket.covers >= lost_up_to_) losses_reported_ = losses;
    ++flushes_failed_;
    return base::Errc::kIo;
  }
  durable_to(ticket.covers);
  return base::Errc::kOk;
}

void DurabilityLedger::durable_to(uint64_t covers) {
  uint64_t known = durable_;
  while (known < covers && !durable_.compare_exchange_weak(known, covers)) {
  }
}

bool DurabilityLedger::restarted() {
  const uint64_t all = acknowledged_by_all();
  if (all <= durable_) return false;
  lost_up_to_ = all;
  durable_to(all);
  ++losses_;  // last: whoever sees the loss sees how far it goes
  return true;
}

}  // namespace braid::bnbd::client
