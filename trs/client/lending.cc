// Queue: permits that go from reactor to reactor (docs/lent-permits.md).
#include "trs/client/lending.h"

#include "trs/client/queue.h"
#include "trs/client/session.h"

namespace braid::trs::client {

namespace {

constexpr uint64_t kAskPauseMinNs = 100 * base::kMicrosecond;
constexpr uint64_t kAskPauseMaxNs = 10 * base::kMillisecond;

}  // namespace

PermitHolding Queue::holding() {
  // What is kept for those who have none is no use to those who wait.
  const uint32_t size = permits_->size();
  const uint32_t free = permits_->free_count();
  const uint32_t kept = std::min(free, reserve_);
  PermitHolding own{size - kept, free - kept, 0};
  for (PermitWaiter* waiter = waiters_.front(); waiter != nullptr;
       waiter = waiters_.next(*waiter)) {
    own.waiting += waiter->users;
  }
  return own;
}

/// Users wait, and there is no permit.
void Queue::ask_others() {
  const uint64_t now_ns = reactor_.now_ns();
  if (refuse_ != base::Errc::kOk) return;
  if (now_ns < ask_again_at_ns_) {
    if (!ask_timer_.pending()) reactor_.schedule(ask_timer_, ask_again_at_ns_);
    return;
  }
  ask_pause_ns_ = std::clamp(ask_pause_ns_ * 2, kAskPauseMinNs, kAskPauseMaxNs);
  ask_again_at_ns_ = now_ns + ask_pause_ns_;
  const PermitHolding own = holding();
  reactor_.schedule(ask_timer_, ask_again_at_ns_);
  for (size_t cid = 1; cid < session_.queues(); ++cid) {
    if (cid != cid_) session_.queue_of(cid).ask(cid_, own);
  }
}

void Queue::time_to_ask(base::Timer& timer) {
  auto& self = *static_cast<Queue*>(timer.context);
  self.ask_if_short();
}

bool Queue::is_short() {
  const uint32_t free = permits_->free_count();
  for (PermitWaiter* waiter = waiters_.front(); waiter != nullptr;
       waiter = waiters_.next(*waiter)) {
    if (free <= waiter->leaves) return true;
  }
  return false;
}

void Queue::ask_if_short() {
  if (lends_ && is_short()) ask_others();
}

/// Messages between queues that were sent before it are there before any queue stops: each sends
/// none after it, and the session waits for all.
void Queue::stop_lending() {
  lends_ = false;
  debts_.assign(debts_.size(), {});
  debts_open_ = 0;
  returned_ = 0;
  reactor_.cancel(ask_timer_);
}

void Queue::ask(uint16_t by_cid, PermitHolding asker) {
  run_here([this, by_cid, asker] {
    if (!lends_) return;
    Debt& debt = debts_[by_cid];
    debts_open_ -= debt.promised;
    debt = {asker, 0};
    const PermitHolding own = holding();
    if (const uint32_t count = spare(own, share_); count > 0) {
      lend(by_cid, count);
    } else if (owes(own, asker, share_)) {
      debt.promised = std::max(1u, asker.waiting);
      debts_open_ += debt.promised;
    }
  });
}

/// Permits came back: they go to those who were promised them.
void Queue::pay_debts() {
  while (returned_ > 0 && debts_open_ > 0 && permits_->free_count() > reserve_) {
    --returned_;
    pay_debt();
  }
  if (debts_open_ == 0) returned_ = 0;
}

/// One goes to somebody who was promised it, unless he has enough by now.
void Queue::pay_debt() {
  const PermitHolding own = holding();
  for (size_t i = 0; i < debts_.size(); ++i) {
    const auto cid = static_cast<uint16_t>(next_debt_++ % debts_.size());
    Debt& debt = debts_[cid];
    if (debt.promised == 0) continue;
    --debt.promised;
    --debts_open_;
    if (!owes(own, debt.asker, share_)) continue;
    ++debt.asker.size;
    return lend(cid, 1);
  }
}

void Queue::lend(uint16_t to_cid, uint32_t count) {
  Loan loan;
  while (loan.count < count) {
    const std::optional<uint32_t> index = permits_->lend();
    if (!index) break;
    const Slot& slot = table_[*index];
    loan.items[loan.count++] = {*index, slot.sequence, slot.epoch};
  }
  base::add_shared(statistics_.permits_lent, loan.count);
  if (loan.count > 0) session_.queue_of(to_cid).take_loan(loan);
}

void Queue::take_loan(const Loan& loan) {
  run_here([this, loan] {
    for (uint32_t i = 0; i < loan.count; ++i) {
      const Loan::Item& item = loan.items[i];
      Slot& slot = table_[item.index];
      slot.sequence = item.sequence;
      slot.epoch = item.epoch;
      permits_->add(item.index);
    }
    base::add_shared(statistics_.permits_borrowed, loan.count);
    ask_pause_ns_ = 0;
    ask_again_at_ns_ = reactor_.now_ns() + kAskPauseMinNs;
    serve_waiters();
    // The timer may fire before that time, and must not be the last: only heartbeats wake who is
    // short while all that he has in flight hangs.
    if (!waiters_.empty() && lends_) reactor_.schedule(ask_timer_, ask_again_at_ns_);
  });
}

}  // namespace braid::trs::client
