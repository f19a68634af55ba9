// BlockRegister: checker of one sector as a single register: linearizable always, durable as far
// as flush, FUA and power losses go.
//
// Operations with overlapping intervals form a *burst*; when the last of a burst has ended, a
// search over the orders that the intervals allow finds every value the sector may now have. None:
// the history is impossible, and that is a violation. Because values are unique (zeroes apart) and
// bursts are short, this is near linear in the length of the history.
//
//   possible()  values that a read now may return. Several after concurrent or failed writes.
//   past        values that were superseded, each with the instant from which on it was no longer
//               current. After a power loss a value may come back if that instant is later than the
//               start of the last flush that succeeded (the floor).
//   A value that came back carries its instant along: a later flush that *succeeds* says that it is
//   not there, so it is struck out; a flush that *fails* admits the loss, so it may stay. So may
//   what only writes that failed had superseded: the loss of those is owed to nobody.
//
// A write that failed, or whose client died, takes effect at one instant of its interval, or never.
// One that was sent again when its session had lost its last path may take effect several times
// within its interval, if its server does not know any more what it had done (docs/trs.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace braid::sim {

/// Counts up with every event of a history; 0 is before everything.
using Instant = uint64_t;
inline constexpr Instant kForever = UINT64_MAX;

class BlockRegister {
 public:
  enum class Kind : uint8_t { kRead, kWrite, kPowerLoss };
  static constexpr size_t kBurstMax = 10;

  /// Operations in the present burst: a workload starts no new one when there are kBurstMax.
  size_t burst() const { return burst_.size(); }
  bool being_written() const;
  /// A write was under way at that instant of the present burst, or began later.
  bool written_since(Instant since) const;
  /// All that may have been in the sector during the present burst, in no order.
  std::vector<uint64_t> versions() const;

  void begin(uint64_t id, Kind kind, uint64_t written, Instant now);
  /// `value`: what a read returned. `durable`: a successful FUA write. `floor`: start of the last
  /// successful flush of the device. `repeated`: a write that may have been done several times.
  /// Returns what is wrong, if anything.
  std::optional<std::string> end(uint64_t id, bool succeeded, uint64_t value, bool durable,
                                 Instant now, Instant floor, bool repeated = false);
  /// What comes back of a value superseded before `unreported` is nobody's broken promise: no
  /// flush strikes it out.
  void power_loss(Instant now, Instant floor, Instant unreported = 0);
  /// A flush failed: what may have been lost is admitted.
  void loss_admitted(Instant floor);
  /// It may have failed at the disk, which then forgets what it could not write: what was written
  /// before may be replaced by older values at a power loss, whatever flush succeeds later.
  /// `begin`: of the flush, who speaks for nothing that was told later; the loss of that is owed
  /// still.
  void dropped(Instant begin, Instant now, Instant floor);

  /// Values a read now may return, in no order; for tests and messages.
  std::vector<uint64_t> possible(Instant floor) const;

 private:
  struct Candidate {
    uint64_t value;
    Instant until;       // no longer current from then on; kForever: may be current
    Instant beside = 0;  // begin of the last write that may have superseded it
    /// Nothing but writes that failed has superseded it: nobody was promised that it is gone.
    bool unowed = false;
    /// It was one of several when a failed flush forgot which: the medium may keep it, whatever is
    /// read, until something is written anew.
    bool left = false;
  };
  struct Op {
    uint64_t id;
    uint64_t value;
    Instant begin;
    Instant end = kForever;
    Kind kind;
    bool certain = false;  // ended with success (power losses too)
    bool durable = false;
    bool repeated = false;
    std::vector<Candidate> restored;  // of a power loss: what may be there after it
  };
  struct Search;
  static constexpr size_t kOpsMax = 32;  // of a burst, with power losses: one bit each in Search

  static void add(std::vector<Candidate>& to, Candidate candidate);
  static bool was_left(const std::vector<Candidate>& before, uint64_t value);
  static void strike(std::vector<Candidate>& candidates, Instant floor);
  /// The only operation of its burst on a known value, the usual case. False: look closer.
  bool resolve_plain(Instant now, Instant floor);
  std::optional<std::string> resolve(Instant now, Instant floor);
  void restore(Op& loss, Instant floor, Instant unreported) const;
  Instant superseded_at(const Op* write, Instant burst_end) const;
  bool overwritten_durably(const Op* write) const;
  bool forgotten_in_burst() const;
  /// Begin of the burst's last write; 0: it has none.
  Instant last_write() const;
  void retire(const std::vector<Candidate>& before, Instant now, Instant floor);
  std::string describe() const;

  std::vector<Candidate> possible_ = {{0, kForever}};
  std::vector<Candidate> past_;
  std::vector<Op> burst_;
  size_t pending_ = 0;
  Instant settled_at_ = 0;  // end of the last write of a burst that was acknowledged
  Instant dropped_to_ = 0;  // what had ended by then, by any of them
  Instant dropped_at_ = 0;  // the last of them
};

}  // namespace braid::sim
