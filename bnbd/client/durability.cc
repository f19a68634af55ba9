#include "bnbd/client/durability.h"

#include <algorithm>

namespace braid::bnbd::client {

uint64_t DurabilityLedger::acknowledged_by_all() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < queues_; ++i)
    sum += counts_[i].acknowledged.load(std::memory_order_acquire);
  return sum;
}

uint64_t DurabilityLedger::told_by_all() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < queues_; ++i) sum += counts_[i].told.load(std::memory_order_acquire);
  return sum;
}

uint64_t DurabilityLedger::open(uint32_t era) const {
  uint64_t sum = 0;
  for (size_t i = 0; i < queues_; ++i)
    sum += counts_[i].open[era % 2].load(std::memory_order_acquire);
  return sum;
}

uint8_t DurabilityLedger::sent(size_t queue) {
  const auto era = static_cast<uint8_t>(era_.load(std::memory_order_relaxed) % 2);
  count(counts_[queue].open[era], 1);
  return era;
}

void DurabilityLedger::acknowledged(uint8_t era, Untold& request, size_t queue) {
  ++request[era];
  count(counts_[queue].acknowledged, 1);
}

void DurabilityLedger::add(Untold& all, Untold& request) {
  for (size_t era = 0; era < kEras; ++era) all[era] += request[era];
  all[kReports] = std::max(all[kReports], request[kReports]);
  request = {};
}

void DurabilityLedger::told(Untold& request, size_t queue) {
  Counts& counts = counts_[queue];
  for (size_t era = 0; era < kEras; ++era) {
    const int64_t parts = request[era];
    if (parts == 0) continue;
    count(counts.told, parts);
    count(counts.open[era], -parts);
  }
  if (request[kReports] != 0) {
    const std::lock_guard lock(mutex_);
    reported(request[kReports]);
  }
  request = {};
}

DurabilityLedger::Ticket DurabilityLedger::begin_flush() {
  const uint64_t told = told_by_all();
  Ticket ticket{acknowledged_by_all(), told, losses_reported_, 0};
  ticket.may_report = ticket.losses_reported;
  if (losses_ == ticket.losses_reported) return ticket;
  const std::lock_guard lock(mutex_);
  if (all_told()) ticket.may_report = losses_;
  return ticket;
}

DurabilityLedger::Ticket DurabilityLedger::submitted(const Ticket& asked) {
  Ticket ticket = asked;
  ticket.covers = acknowledged_by_all();
  return ticket;
}

DurabilityLedger::Ticket DurabilityLedger::begin_flush_behind(uint32_t losses_before) {
  constexpr uint32_t kNone = UINT32_MAX;
  return {acknowledged_by_all(), 0, losses_before, kNone};
}

base::Errc DurabilityLedger::flushed(const Ticket& ticket, Untold* request) {
  if (losses_ == ticket.losses_reported) {
    durable_to(ticket.covers);
    return base::Errc::kOk;
  }
  const std::lock_guard lock(mutex_);
  ++flushes_failed_;
  report(ticket, request);
  return base::Errc::kIo;
}

bool DurabilityLedger::flush_failed(const Ticket& ticket, Untold* request) {
  const std::lock_guard lock(mutex_);
  ++flushes_failed_;
  const bool open_too = open(0) + open(1) > 0;
  const uint64_t all = acknowledged_by_all();
  if (all > durable_ || open_too) lose(all, open_too);
  report(ticket, request);
  return loss_unreported() && (request == nullptr || (*request)[kReports] != losses_);
}

bool DurabilityLedger::restarted(bool done_again) {
  const std::lock_guard lock(mutex_);
  const bool open_now = open(0) + open(1) > 0;
  const uint64_t all = acknowledged_by_all();
  const bool open_too = done_again ? all != told_by_all() : open_now;
  if (all <= durable_ && (done_again || !open_now)) return false;
  durable_to(all);  // lost once: they are in no cache any more
  lose(all, open_too);
  return true;
}

void DurabilityLedger::durable_to(uint64_t covers) {
  uint64_t known = durable_;
  while (known < covers && !durable_.compare_exchange_weak(known, covers)) {
  }
}

void DurabilityLedger::lose(uint64_t acknowledged, bool open_too) {
  lost_up_to_ = acknowledged;
  open_too_ = open_too;
  if (open_too) watch();
  ++losses_;  // last: whoever sees the loss sees how far it goes
}

/// Begins another era, to see the end of what is open now.
void DurabilityLedger::watch() {
  const uint32_t era = era_;
  watching_next_ = open(era + 1) > 0;
  watching_ = true;
  if (!watching_next_ && !era_stuck_) era_ = era + 1;
}

/// Whether all that is at stake has been told.
bool DurabilityLedger::all_told() {
  while (watching_) {
    if (open(era_ + 1) > 0) return false;
    watching_ = watching_next_;
    if (!watching_next_) break;
    watching_next_ = false;
    ++era_;
  }
  return true;
}

/// A flush that its user is told to have failed, or will be.
void DurabilityLedger::report(const Ticket& ticket, Untold* request) {
  const uint32_t losses = losses_;
  const bool told_before = ticket.known >= lost_up_to_ && !open_too_;
  if (ticket.may_report != losses && !told_before) return;
  if (request == nullptr) return reported(losses);
  (*request)[kReports] = losses;
}

void DurabilityLedger::reported(uint32_t losses) {
  losses_reported_ = std::max<uint32_t>(losses_reported_, losses);
}

}  // namespace braid::bnbd::client
