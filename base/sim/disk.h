// SimDisk: one file or disk of a simulated machine, with a volatile write cache and faults.
//
// Two images: what reads see (`current`), and what survives a power loss (`durable`); they differ
// in the dirty sectors. A FUA write makes its sectors durable; a flush those that were written when
// it was handed over, and of later ones what chance will. Besides, the disk may write a dirty
// sector back whenever it likes. A power loss keeps any subset of the dirty 512-byte sectors, so
// that a write may be lost, survive or be torn. A flush that fails writes some of what it covers
// and forgets that the rest is dirty, as a kernel does: no later flush writes that. A disk that
// lies acknowledges flush and FUA and does nothing; a reverting one is as at an earlier flush after
// a power loss.
//
// One thread: the world's. Operations are timed and delivered by SimIoQueue; here they take effect
// at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/host.h"
#include "base/sim/medium.h"
#include "base/sim/random.h"
#include "base/sim/zeroed_bytes.h"

namespace braid::base::sim {

inline constexpr uint64_t kSectorBytes = 512;

struct SimDiskOptions {
  uint64_t size_bytes = 16 << 20;  // multiple of 512
  uint32_t logical_block_bytes = 512;
  uint32_t physical_block_bytes = 4096;
  bool block_device = false;
  bool erases = false;        // can erase for good
  bool lying = false;         // always: see SimDiskFaults
  bool misdirecting = false;  // a write goes to another place now and then, and is acknowledged
  bool reverting = false;     // a power loss brings it back as it was at an earlier flush
  uint64_t latency_min_ns = 10 * kMicrosecond;
  uint64_t latency_max_ns = 120 * kMicrosecond;
};

/// Faults that a scenario turns on and off.
struct SimDiskFaults {
  uint32_t errors_per_million = 0;  // operations that fail; a failed write may have torn
  Errc error = Errc::kIo;           // how they fail
  bool full = false;                // no room: every other write fails so, and may have torn
  bool lying = false;               // acknowledges flush and FUA without doing them
  bool shortens = false;          // every other transfer moves a part; the rest has to be asked for
  uint32_t slow_factor = 1;       // latency is multiplied
  uint64_t stalled_until_ns = 0;  // nothing completes before
  bool stalls_some = false;       // of the operations, every other one by chance
  bool keeps_no_mark = false;     // set_mark() fails
  bool sets_undurably = false;    // set_note() and set_size() that fail have failed at the flush
};

struct SimDiskCounters {
  uint64_t operations = 0, errors = 0, slow = 0, stalled = 0;
  uint64_t refused_for_room = 0, misdirected = 0, shortened = 0;
  uint64_t sectors_lost = 0, sectors_kept = 0, flushes_ignored = 0;  // flushes: FUA, too
  uint64_t sectors_dropped = 0;                                      // by flushes that failed
  uint64_t late_writes = 0;  // landed after the death of their process
};

/// A lock on a disk (flock). Shared by the open file and by operations of a dead process that are
/// still under way; gone with the last of them.
class SimDiskLock {
 public:
  struct Holders {
    unsigned shared = 0;
    bool exclusive = false;
  };
  /// Null if others hold it in a way that excludes this one.
  static std::shared_ptr<SimDiskLock> take(std::shared_ptr<Holders> holders, bool exclusive);
  SimDiskLock(std::shared_ptr<Holders> holders, bool exclusive)
      : holders_(std::move(holders)), exclusive_(exclusive) {}
  ~SimDiskLock();
  SimDiskLock(const SimDiskLock&) = delete;
  SimDiskLock& operator=(const SimDiskLock&) = delete;

 private:
  const std::shared_ptr<Holders> holders_;
  const bool exclusive_;
};

class SimDisk {
 public:
  SimDisk(std::string identity, const SimDiskOptions& options, SimRandom random);

  const SimDiskOptions& options() const { return options_; }
  const std::string& identity() const { return identity_; }
  uint32_t id() const { return id_; }
  void set_id(uint32_t id) { id_ = id; }
  SimDiskFaults faults;
  /// For checkers: told of each write, where it was to go and what it holds, before it takes
  /// effect.
  std::function<void(uint64_t offset_bytes, std::span<const std::byte> data)> on_write;
  /// For tests: told of each operation that it is handed.
  std::function<void(const IoOp& op)> on_operation;

  /// It lies on this from now on, beside other files.
  void put_on(std::shared_ptr<SimMedium> medium) {
    file_of_medium_ = medium->add_file();
    medium_ = std::move(medium);
  }
  /// When an operation handed over now, on so much, ends. Counts slow and stalled ones.
  uint64_t completion_time(uint64_t now_ns, uint64_t bytes = 0);
  /// Of a transfer of so much is left: what of it moves now, in whole sectors.
  uint64_t moves(uint64_t left_bytes);
  /// A flush is handed over: gives what it covers, for execute().
  uint64_t begin_flush() { return flush_covers_ = stores_; }
  /// Does it. Write: `data` holds the bytes; read: `data` receives them; flush: what it covers.
  Errc execute(IoOpcode opcode, bool force_unit_access, uint64_t offset_bytes,
               uint64_t length_bytes, std::byte* data, uint64_t flush_covers = UINT64_MAX);
  /// kOutOfRange or kInvalid for what the disk could never do.
  Errc check(IoOpcode opcode, uint64_t offset_bytes, uint64_t length_bytes) const;
  /// File::note() and set_note(): durable at once, unless it fails. Not on block devices.
  Result<uint64_t> note() const;
  Status set_note(uint64_t note);
  /// File::mark() and set_mark(): what a kernel has in memory, which a disk that fails does not
  /// hurt.
  Result<File::Mark> mark() const;
  Status set_mark(const File::Mark& mark);
  /// File::set_size(): durable at once. Not on block devices, but by resize().
  Status set_size(uint64_t size_bytes);
  Status secure_erase(uint64_t offset_bytes, uint64_t length_bytes);
  /// What an administrator does, whatever the kind. What is under way beyond the end then fails.
  void resize(uint64_t size_bytes);
  void power_loss();
  /// Counts power losses: what was under way before one does not happen after it.
  uint64_t boot() const { return boot_; }
  std::shared_ptr<SimDiskLock> lock(bool exclusive) {
    return SimDiskLock::take(lock_holders_, exclusive);
  }

  /// For checkers and scenarios: what reads see, what would survive now.
  std::span<const std::byte> current() const { return current_; }
  std::span<const std::byte> durable() const { return durable_; }
  const SimDiskCounters& counters() const { return counters_; }
  void count_late_write() { ++counters_.late_writes; }

 private:
  bool lies() const { return options_.lying || faults.lying; }
  Status fail_setting(const char* what);
  Errc fail_store(uint64_t offset_bytes, uint64_t length_bytes, const std::byte* data, Errc error);
  uint64_t elsewhere(uint64_t length_bytes);
  void store(uint64_t offset_bytes, uint64_t length_bytes, const std::byte* data, bool durable);
  void store_sector(uint64_t sector, const std::byte* data, bool durable, uint64_t chance);
  void make_durable(uint64_t sector);
  void flush(uint64_t covers);
  void fail_flush(uint64_t covers);

  const std::string identity_;
  SimDiskOptions options_;
  uint32_t id_ = 0;
  SimRandom random_;
  ZeroedBytes current_;
  ZeroedBytes durable_;
  ZeroedBytes earlier_;                  // reverting: durable_ as it was at some flush
  std::vector<bool> dirty_;              // by sector
  std::vector<uint32_t> dirty_sectors_;  // those set in dirty_ (some may be clean again)
  std::vector<uint64_t> stored_as_;      // by sector: the number of the last write
  uint64_t stores_ = 0;                  // writes so far
  uint64_t flush_covers_ = 0;            // of the last flush that was handed over
  SimDiskCounters counters_;
  uint64_t note_ = 0;
  File::Mark mark_ = {};
  uint64_t boot_ = 0;
  std::shared_ptr<SimMedium> medium_;  // null: it has a disk for itself, which is never short
  size_t file_of_medium_ = 0;
  const std::shared_ptr<SimDiskLock::Holders> lock_holders_ =
      std::make_shared<SimDiskLock::Holders>();
};

}  // namespace braid::base::sim
