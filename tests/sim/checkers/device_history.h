// DeviceHistory: everything that clients did to one device, checked as it happens: each sector as a
// BlockRegister, flushes and power losses for the device as a whole.
//
// Two rules beyond the registers':
//   - what a read returns is a stamp of this device and sector (checkers/stamp.h);
//   - when the server's machine lost power while acknowledged writes were not flushed, the next
//     flush must fail (design section 4: the incarnation rule).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/sim/checkers/register.h"
#include "tests/sim/checkers/stamp.h"
#include "tests/sim/checkers/violations.h"

namespace braid::sim {

enum class OpKind : uint8_t { kRead, kWrite, kZero, kFlush };  // kZero: discard and write-zeroes

struct OpDescription {
  OpKind kind = OpKind::kRead;
  uint64_t first_sector = 0;
  uint64_t sectors = 0;
  bool durable = false;   // FUA
  bool preflush = false;  // a flush of what ended before it began
};

class DeviceHistory {
 public:
  /// `may_tear`: the server answers reads out of memory that writes change meanwhile, so a sector
  /// that is read and written at once may come in two parts.
  DeviceHistory(Violations& violations, uint64_t device, uint64_t size_sectors,
                bool may_tear = false);

  /// Its flushes may wait before they are submitted, and do what was told while they waited.
  void flushes_may_wait() { flushes_wait_ = true; }

  uint64_t device() const { return device_; }
  uint64_t size_sectors() const { return registers_.size(); }
  /// False: too much is going on at these sectors to be judged; choose others.
  bool admits(uint64_t first_sector, uint64_t sectors) const;
  bool being_written(uint64_t first_sector, uint64_t sectors) const;

  /// `id` is unique among all operations of the world, from 1; a write's stamps bear it as version.
  void begin(uint64_t id, const OpDescription& op);
  /// The device has done this change or flush well, and its user has not heard yet: flushes that
  /// begin from now on cover the change, and what the flush covers is no loss that must be told.
  void done(uint64_t id);
  struct Doubts {
    /// Of what failed: there was a reason besides a power loss, of which the client may still owe
    /// the report.
    bool otherwise_explained = false;
    /// Of what failed: a disk that fails flushes may have been the reason, and may have dropped
    /// what was in its cache.
    bool dropped = false;
    /// It may have been done several times.
    bool repeated = false;
  };
  /// `read_data`: what a successful read returned.
  void end(uint64_t id, bool succeeded, std::span<const std::byte> read_data, const Doubts& doubts);
  void end(uint64_t id, bool succeeded, std::span<const std::byte> read_data) {
    end(id, succeeded, read_data, Doubts());
  }
  /// The disk may lie while this one runs: should it be acknowledged as durable, or as a flush, its
  /// client believes it, and what comes back after a power loss is all the same no violation.
  void lied_to(uint64_t id);
  /// The server's machine lost power: what was not flushed may be gone.
  void power_loss();
  /// The device's writer is a new process, which has been promised nothing yet: it owes no report
  /// of what its predecessor lost, and its flushes vouch only for what it wrote itself.
  void writer_restarted();
  /// A flush that succeeds now would hide a loss.
  bool owes_report() const { return !losses_.empty(); }
  /// Flushes may have failed at the disk that nobody will hear of any more: who would have told it
  /// has died, or who would have been told.
  void flushes_forgotten();
  /// Whether this running operation may fail because of a loss: it flushes, and a loss that was
  /// not reported, or may have been one, fell into its time.
  bool may_report_loss(uint64_t id) const;

  /// Sectors with operations whose burst has not come to its end: nothing of it was judged.
  uint64_t unjudged() const;

  uint64_t losses_reported() const { return losses_reported_; }

 private:
  struct Running {
    OpDescription op;
    Instant begin = 0;
    Instant done = 0;        // 0: not before its user hears; not of a flush
    Instant flush_done = 0;  // 0: the same; of what flushes
    Instant lost_at = 0;     // it was done, and this loss came before its user has heard
    bool saw_loss = false;   // see may_report_loss
    bool lied_to = false;
    bool flushes() const { return op.kind == OpKind::kFlush || op.preflush; }
    bool is_lie() const { return lied_to && (flushes() || op.durable); }
  };
  /// What was acknowledged and not flushed when the server's machine lost power. One power loss
  /// makes two of them if the user hears of some of it later.
  struct Loss {
    Instant at = 0;    // of the power loss
    Instant done = 0;  // by then the device had done all of it: a flush that covers that saves it
    Instant told = 0;  // and its user had heard: a flush that begins later has to report it
    // A preflush that covers all of it was under way, or a flush had failed that does, or one that
    // waited may have covered it: it may have been done before the loss. Then nothing was lost, and
    // nothing is owed.
    bool in_doubt = false;
  };
  void write_acknowledged(const Running& write);
  void loss_seen();
  bool is_torn(uint64_t sector, Instant read_begin, std::span<const std::byte> bytes) const;
  void check_flush(const Running& flush, bool succeeded, const Doubts& doubts);
  void flush_succeeded(const Running& flush);
  void flush_done_well(const Running& flush);
  Instant may_cover(const Running& flush) const;
  bool maybe_flushed_since(Instant done) const;
  void end_sectors(uint64_t id, const Running& running, bool succeeded,
                   std::span<const std::byte> read_data, bool repeated);

  Violations& violations_;
  const uint64_t device_;
  const bool may_tear_;
  std::vector<BlockRegister> registers_;
  std::map<uint64_t, Running> running_;
  Instant clock_ = 0;
  Instant floor_ = 0;     // begin of the last successful flush that the disk did
  Instant promised_ = 0;  // the same, whether the disk did it or not: what clients rely on
  Instant lies_to_ = 0;   // begin of the last operation that was acknowledged by a lie
  Instant writer_since_ = 0;
  Instant last_acknowledged_ = 0;  // end of the last successful write that was not durable itself
  Instant last_done_ = 0;          // the same, when the device had done it
  Instant last_failed_ = 0;        // end of the last write that failed
  std::vector<Loss> losses_;       // that nobody has reported
  // Begin of the last flush that failed, or that the device has done and its user has not heard of;
  // where flushes wait, that moment, and the end of the last one that did not fail.
  Instant maybe_flushed_ = 0;
  bool flushes_wait_ = false;
  // Writes from before the last power loss whose acknowledgement came after it may have been lost,
  // too, and their client knows it: end of the last of them. 0: none, or settled by a flush.
  Instant last_loss_ = 0;
  Instant doubtful_ = 0;
  uint64_t losses_reported_ = 0;
};

}  // namespace braid::sim
