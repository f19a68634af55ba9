#include "bnbd/client/durability.h"

#include <algorithm>

namespace braid::bnbd::client {

base::Errc DurabilityLedger::flushed(const Ticket& ticket) {
  if (losses_ > ticket.losses_reported) {
    // A flush older than some of the lost writes fails too, but cannot speak for those.
    if (ticket.covers >= lost_up_to_) losses_reported_ = losses_;
    ++flushes_failed_;
    return base::Errc::kIo;
  }
  durable_ = std::max(durable_, ticket.covers);
  return base::Errc::kOk;
}

bool DurabilityLedger::restarted() {
  if (acknowledged_ == durable_) return false;
  ++losses_;
  lost_up_to_ = durable_ = acknowledged_;
  return true;
}

}  // namespace braid::bnbd::client
