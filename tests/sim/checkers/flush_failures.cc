#include "tests/sim/checkers/flush_failures.h"

namespace braid::sim {

namespace {

constexpr uint64_t kMarkingNs = 100'000'000;  // a worker may come late
constexpr uint64_t kLateNs = 1'000'000'000;   // what a dead process has handed over has happened

}  // namespace

// --- DiskFailures

void DiskFailures::set(uint32_t kind, bool on, uint64_t now_ns) {
  if (on) {
    kinds_ |= kind;
    heard_ = false;
    of_dead_ |= died_ns_ != 0 && now_ns - died_ns_ < kLateNs;
    ever_ = in_this_process_ = may_be_forgotten_ = untold_ = true;
  } else if ((kinds_ & kind) != 0) {
    kinds_ &= ~kind;
    off_ns_ = now_ns;
  }
}

void DiskFailures::succeeded(uint64_t begin_ns, uint64_t now_ns) {
  if (may_fail() || heard_ || begin_ns <= off_ns_) return;
  heard_ = true;
  heard_ns_ = now_ns;
}

bool DiskFailures::may_die_unmarked(uint64_t now_ns) const {
  return may_fail() || unmarked_ || of_dead_ || now_ns - off_ns_ < kMarkingNs;
}

void DiskFailures::server_died(uint64_t now_ns) {
  died_ns_ = now_ns;
  of_dead_ = may_fail();
  in_this_process_ = may_be_forgotten_ = may_fail();
  if (may_fail() || heard_) return;
  heard_ = true;
  heard_ns_ = now_ns;
}

// --- UntoldLosses

void UntoldLosses::failures_begin(const Ways& ways) {
  incarnation_changes(true, ways);
}

void UntoldLosses::failures_end(const Ways& ways) {
  failed_ = true;
  may_tell_ = ways.there;
  connections_then_ = ways.connections;
  told_ = 0;
}

void UntoldLosses::incarnation_changes(bool of_disk, const Ways& ways) {
  if (openings_tell_ == 0) {
    reopened_ = ways.reopened;
    openings_of_disk_ = false;
  }
  openings_of_disk_ |= of_disk;
  openings_tell_ = kOpeningsMax;
}

void UntoldLosses::look(const Ways& ways, bool more) {
  if (ways.reopened == reopened_) return;
  reopened_ = ways.reopened;
  if (!more) --openings_tell_;
  lose(openings_of_disk_);
}

void UntoldLosses::change_begins(uint64_t id) {
  running_.insert(id);
  if (growing_) at_stake_.insert(id);
}

void UntoldLosses::change_ends(uint64_t id) {
  running_.erase(id);
  at_stake_.erase(id);
  older_.erase(id);
  ++changes_ended_;
}

UntoldLosses::Ticket UntoldLosses::flush_begins() {
  growing_ = growing_ && !older_.empty();
  const bool all_ended = at_stake_.empty() && !growing_;
  return {reported_, all_ended ? losses_ : reported_, changes_ended_};
}

UntoldLosses::Cause UntoldLosses::flush_fails(uint64_t id, const Ticket& ticket, bool at_disk,
                                              const Ways& ways) {
  const bool covers = covers_all(id, ticket);
  const bool by_loss = losses_ != ticket.reported;
  const bool untold = failed_ && told_ + connections_then_ < may_tell_ + ways.connections;
  if (!at_disk && !untold) {
    if (!by_loss) return Cause::kNone;
    const Cause cause = disk_losses_ > ticket.reported ? Cause::kDisk : Cause::kRestart;
    if (covers || ticket.may_report == losses_) report();
    return cause;
  }
  // Where both may be, the client may have had nothing at stake by the loss: nobody here knows
  // whether a connection has told now.
  if (!at_disk && !by_loss) ++told_;
  lose(true);
  if (covers) report();
  return Cause::kDisk;
}

void UntoldLosses::lose(bool of_disk) {
  if (!growing_) older_ = at_stake_;
  growing_ = !older_.empty();
  at_stake_ = running_;
  ++losses_;
  if (of_disk) disk_losses_ = losses_;
}

void UntoldLosses::report() {
  reported_ = losses_;
  at_stake_.clear();
  older_.clear();
  growing_ = false;
}

}  // namespace braid::sim
