// What failures of a disk allow flushes to fail with, and for how long (docs/bnbd.md, "Flush"): as
// long as one has not been told, and no longer.
//
//   DiskFailures  of one device: when its disk may fail, and until when the server may still hear
//                 of it.
//   UntoldLosses  of one client's handle: each of its connections is told of a failure once, and
//                 each reopening once; then flushes fail until one of them is a report: begun when
//                 all had ended that was under way at the failure.
//
// It knows requests, of which the client knows parts: so it takes more to be at stake than there
// is, and excuses more.
#pragma once

#include <cstdint>
#include <set>

namespace braid::sim {

class DiskFailures {
 public:
  /// `kinds`: of faults (bits) that are on now.
  void set(uint32_t kind, bool on, uint64_t now_ns);
  bool may_fail() const { return kinds_ != 0; }
  /// Of any request: the server has answered what came after the last failure.
  void succeeded(uint64_t begin_ns, uint64_t now_ns);
  /// Its process has died, and with it what it had not told.
  void server_died(uint64_t now_ns);
  /// What began then may have been at the server together with what failed.
  bool overlaps(uint64_t begin_ns) const { return may_fail() || !heard_ || begin_ns <= heard_ns_; }
  /// The disk may have failed, or the server have heard of it, since then.
  bool since(uint64_t begin_ns) const { return ever_ && overlaps(begin_ns); }
  /// The server's process has seen failures: the next one begins to count anew.
  bool in_this_process() const { return in_this_process_; }
  /// What a failed flush has left in the cache may be unknown to its writer.
  bool may_be_forgotten() const { return may_be_forgotten_; }
  /// Then no server may know of it if its process dies now: a process leaves a mark at the file
  /// for the next one, soon after a failure. Nobody does that for what a dead one had handed over.
  bool may_die_unmarked(uint64_t now_ns) const;
  /// No flush has told of it yet. A server that knows by the mark tells those who come back, and
  /// not who opens it anew: to him what was left in the cache is as good as forgotten.
  bool may_be_untold() const { return untold_; }
  /// A flush has told all of it, well or not.
  void told() {
    may_be_forgotten_ = untold_ = may_fail();
    unmarked_ = unmarked_ && may_fail();
  }
  /// With the failures that begin now: a mark that could not be left is left behind a flush that
  /// ends well.
  void marks_may_fail() { unmarked_ = true; }

 private:
  uint32_t kinds_ = 0;
  bool ever_ = false;
  bool heard_ = true;
  bool in_this_process_ = false;
  bool may_be_forgotten_ = false;
  bool untold_ = false;
  bool unmarked_ = false;  // perhaps
  bool of_dead_ = false;   // perhaps: a flush that a dead process had handed over
  uint64_t off_ns_ = 0;
  uint64_t died_ns_ = 0;  // 0: never
  uint64_t heard_ns_ = 0;
};

class UntoldLosses {
 public:
  /// Of a session and its device.
  struct Ways {
    uint64_t connections = 0;  // made in all its life
    uint64_t there = 0;        // of these, at most so many now
    uint64_t reopened = 0;     // how often
  };
  struct Ticket {
    uint64_t reported = 0;    // losses, before it began
    uint64_t may_report = 0;  // of so many all that was at stake had ended
    uint64_t changes_ended = 0;
  };

  /// The disk may fail from now on, until failures_end().
  void failures_begin(const Ways& ways);
  void failures_end(const Ways& ways);
  /// The server tells another incarnation from now on. `of_disk`: because its disk has failed.
  void incarnation_changes(bool of_disk, const Ways& ways);
  /// Whether look() has something to see.
  bool looks_at_openings() const { return openings_tell_ > 0; }
  /// Before a request ends. `more`: the incarnation may go on changing.
  void look(const Ways& ways, bool more);

  void change_begins(uint64_t id);
  void change_ends(uint64_t id);
  Ticket flush_begins();
  /// Why a flush may fail: for nothing, a loss by a restart, or one (or a failure) of the disk.
  enum class Cause : uint8_t { kNone, kRestart, kDisk };
  /// `id` has failed. `at_disk`: it may have failed there itself.
  Cause flush_fails(uint64_t id, const Ticket& ticket, bool at_disk, const Ways& ways);

 private:
  // An answer to OPEN may have been under way when the incarnation changed.
  static constexpr unsigned kOpeningsMax = 2;

  void lose(bool of_disk);
  /// Nothing that was not told when it began can be at stake.
  bool covers_all(uint64_t id, const Ticket& ticket) const {
    return running_.size() == running_.count(id) && changes_ended_ == ticket.changes_ended;
  }
  void report();

  bool failed_ = false;    // the disk, perhaps
  uint64_t may_tell_ = 0;  // connections that were there when the disk had failed last
  uint64_t told_ = 0;      // of these and of later ones
  uint64_t connections_then_ = 0;
  unsigned openings_tell_ = 0;  // so many more may tell another incarnation
  bool openings_of_disk_ = false;
  uint64_t reopened_ = 0;  // seen

  uint64_t losses_ = 0;
  uint64_t reported_ = 0;
  uint64_t disk_losses_ = 0;     // up to the last one of the disk
  std::set<uint64_t> running_;   // changes
  std::set<uint64_t> at_stake_;  // of these, at the last loss
  std::set<uint64_t> older_;     // and at one before it
  bool growing_ = false;         // what begins is at stake, too, until those of older_ have ended
  uint64_t changes_ended_ = 0;
};

}  // namespace braid::sim
