// Judge: all checkers of a round in one place, and the book of what clients have under way.
//
// It stands outside every process: it knows what was asked and what was answered, nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sim.h"
#include "tests/sim/board.h"
#include "tests/sim/checkers/applied_once.h"
#include "tests/sim/checkers/completion.h"
#include "tests/sim/checkers/device_history.h"
#include "tests/sim/checkers/exclusive.h"
#include "tests/sim/checkers/flush_failures.h"
#include "tests/sim/checkers/give_up.h"
#include "tests/sim/checkers/violations.h"
#include "tests/sim/plan.h"

namespace braid::sim {

class Judge {
 public:
  Judge(base::sim::SimWorld& world, const Plan& plan, base::Logger log);

  // --- a client's handle on a device
  /// The client is about to open the device. Whatever it hears, the server may let it in; if it
  /// wants to write, requests of other writers may then fail.
  void asks(size_t client, size_t device, Wish as);
  /// What is asked of an open device until closed() or client_dies().
  struct Asked {
    std::function<uint64_t()> losses;  // how often the session has lost its last path
    std::function<UntoldLosses::Ways()> ways;
    bool checks = false;  // reads fail that do not return what was written (bnbd/filters.h)
  };
  /// For writing: nothing of a former writer can still land.
  void opened(size_t client, size_t device, Wish as, Asked asked);
  /// From here on its requests may be cancelled.
  void closing(size_t client, size_t device);
  void closed(size_t client, size_t device) {
    handles_.erase({client, device});
    asked_.erase({client, device});
  }
  /// The client's process is about to die.
  void client_dies(size_t client);

  // --- requests on an open handle
  /// `known_sectors`: how large the device is to whom it is submitted.
  uint64_t begin(size_t client, size_t device, const OpDescription& op, uint64_t known_sectors);
  /// `read_data`: what a read returned, also one that a checksum has refused for what it returned.
  void end(uint64_t id, base::Errc status, std::span<const std::byte> read_data);
  /// The device has ended it, a change or flush that is done or a flush that failed; its user hears
  /// of that by end(), later.
  void done(uint64_t id, bool well);

  // --- what happens to servers
  void server_died(size_t server);
  void server_lost_power(size_t server);
  /// The server is dead since the client's limit and GiveUpChecker::kSlackNs, and nothing has kept
  /// the client from noticing.
  void check_gave_up(size_t client, size_t server);
  /// A disk error was injected into a device's disk, or ended.
  void disk_may_fail(size_t device, bool on);
  void marks_may_fail(size_t device) { devices_[device].failures.marks_may_fail(); }
  /// The same: there may be no room for what is written.
  void disk_may_fill(size_t device, bool on);
  /// Its disk acknowledges flushes and FUA writes and may not do them.
  void disk_may_lie(size_t device, bool on);
  /// The disk of a device is about to store this.
  void disk_stores(size_t device, uint64_t first_sector, std::span<const std::byte> data);
  /// An operator has the device closed at its server.
  void operator_closes(size_t device) { devices_[device].taken_away_ns = world_.now_ns(); }
  /// An operator asks the server for another size of a file. False: too much is going on there to
  /// be judged, or it has that size; ask for nothing.
  bool resize_begins(size_t device, uint64_t sectors);
  bool being_resized(size_t device) const { return devices_[device].wanted_sectors != 0; }
  /// `done`: if not, it may have been done or not.
  void resize_ended(size_t device, bool done);
  /// The file of a device whose server is dead has another size now; else as resize_begins().
  bool resized_away(size_t device, uint64_t sectors);
  /// It is as large as it was planned, whoever knows.
  void size_restored(size_t device) { devices_[device].cut_away.reset(); }
  /// The user of a handle takes the device as it is.
  void remaps(size_t client, size_t device);
  /// Another file has taken the name of the device's, whose server is dead.
  void file_replaced(size_t device);
  /// All is closed: nothing lands any more, and nothing may be left that was not judged.
  void finish();

  /// No fault is active any more: from now on nothing takes longer than kCalmLatencyMaxNs. A
  /// wake-up that gets lost shows here, because the next heartbeat repairs it.
  void calm_begins() { calm_ = true; }
  static constexpr uint64_t kCalmLatencyMaxNs = 100 * base::kMillisecond;

  /// Of the handle of a client.
  DeviceHistory& history(size_t client, size_t device);
  uint64_t losses_reported() const;
  /// Requests under way.
  size_t requests_at(size_t server) const;
  size_t requests_of(size_t client) const;
  size_t requests_between(size_t client, size_t server) const;
  /// Called with client and device when a request begins.
  std::function<void(size_t client, size_t device)> on_begin;
  /// Whether the client's process was late since then. May be empty.
  std::function<bool(size_t client, uint64_t since_ns)> disturbed;
  CompletionChecker& completions() { return completions_; }
  const GiveUpChecker& give_ups() const { return give_ups_; }
  Violations& violations() { return violations_; }
  uint64_t failed_operations() const { return failed_; }

 private:
  /// A device from one identity to the next: a file has one life, a memory device one for each
  /// process of its server.
  struct Life {
    std::unique_ptr<DeviceHistory> history;
    uint64_t ended_ns = base::kNever;
  };
  struct Handle {
    Life* life = nullptr;
    Wish as = Wish::kRead;
    uint64_t serial = 0;
    uint64_t opened_ns = 0;
    std::shared_ptr<UntoldLosses> untold;
    uint64_t there_ns = 0;    // when the device was surely there for the last time
    bool rivalled = false;    // another client wanted to write since it was opened
    bool superseded = false;  // and was let in
    bool remapped = false;    // its user has taken the device as it is
    bool checks = false;      // see Asked
    bool blemished = false;   // the device may not have what it has acknowledged
    uint64_t cut_to = 0;      // sectors: the smallest size that its user may not know of; 0: none
    bool writes() const { return as != Wish::kRead; }
  };
  struct Operation {
    uint64_t id = 0;
    size_t client = 0;
    size_t device = 0;
    Handle handle;
    OpDescription what;
    uint64_t begin_ns = 0;
    uint64_t losses = 0;      // of the session's last path, when it began
    uint64_t deaths = 0;      // of the server
    bool repeated = false;    // see may_be_repeated()
    uint64_t gave_up_ns = 0;  // of an orphan: when its device gave up; 0: it was cancelled
    bool calm = false;
    bool done = false;            // by the device, and its user has not heard
    bool may_fail = false;        // a disk error fell into its time
    bool may_not_fit = false;     // the disk was full in its time
    bool may_be_beyond = false;   // the end of the device
    bool may_cancel = false;      // its handle is being closed
    bool rivalled = false;        // another client wanted to write
    bool in_history = true;       // not settled before its end
    uint64_t known_sectors = 0;   // to whom it was submitted
    UntoldLosses::Ticket ticket;  // if it flushes
    bool tells_all = false;       // see tells_all()
    bool flushes() const { return what.kind == OpKind::kFlush || what.preflush; }
    bool changes() const { return what.kind == OpKind::kWrite || what.kind == OpKind::kZero; }
    DeviceHistory& history() const { return *handle.life->history; }
  };
  struct Device {
    std::vector<std::unique_ptr<Life>> lives;  // the last one is the present
    std::unique_ptr<ExclusiveChecker> exclusive;
    bool disk_may_fail = false;
    bool disk_may_fill = false;
    bool disk_may_lie = false;
    DiskFailures failures;
    uint64_t sectors = 0;         // at most so many
    uint64_t least_sectors = 0;   // at least so many
    uint64_t wanted_sectors = 0;  // by a resize that has not ended; 0: none
    /// While nobody could tell its clients the file got smaller. Who believed in more before must
    /// not go on when he comes back, unless it was larger again.
    struct CutAway {
      uint64_t at_ns = 0;
      uint64_t most_sectors = 0;  // since then
    };
    std::optional<CutAway> cut_away;
    bool resized_by_server = false;  // it may have news of sizes on the way
    uint64_t cut = 0;                // the operation that stands for what is cut off; 0: none
    uint64_t taken_away_ns = 0;      // by an operator, for the last time
    uint64_t server_deaths = 0;
    std::vector<Operation> orphans;  // given up by their clients, may still land
  };
  // From the wish of an operator until the server knows of it.
  static constexpr uint64_t kTakeAwayMaxNs = 100 * base::kMillisecond;

  void begin_life(size_t device);
  void replace(size_t device);
  void rival_each_other(size_t device);
  Operation take(uint64_t id);
  uint64_t losses_of(size_t client, size_t device) const;
  bool shares(const Operation& op, uint32_t feature) const;
  bool may_be_repeated(const Operation& op) const;
  bool explained(const Operation& op, base::Errc status, bool flush_may_fail, bool refused);
  bool flush_may_fail(const Operation& op);
  bool may_mismatch(const Operation& op) const;
  void blemish(size_t device);
  bool tells_all(const Operation& flush) const;
  void flush_ended(const Operation& op);
  UntoldLosses::Ways ways_of(size_t client, size_t device) const;
  void look_at_openings(const Operation& op);
  void disk_fails(size_t device, uint32_t kind, bool on);
  void incarnation_changes(size_t device, bool of_disk);
  void ends_at_device(const Operation& op);
  void succeeded(const Operation& op);
  void check_cut_away(const Operation& op);
  void check_latency(const Operation& op);
  void gave_up(const Operation& op, uint64_t limit_ns);
  void end_unknown(const Operation& op);
  void end_orphans(size_t device);
  void end_overtaken(const Operation& op);
  void supersede(size_t client, size_t device, uint64_t asked_ns);

  base::sim::SimWorld& world_;
  const Plan& plan_;
  base::Logger log_;
  Violations violations_;
  CompletionChecker completions_{violations_};
  GiveUpChecker give_ups_{violations_};
  AppliedOnceChecker applied_once_{violations_};
  std::vector<Device> devices_;
  std::map<std::pair<size_t, size_t>, Handle> handles_;     // by client and device
  std::map<std::pair<size_t, size_t>, uint64_t> asked_ns_;  // to open, by client and device
  std::map<std::pair<size_t, size_t>, uint64_t> asked_to_write_ns_;
  std::map<std::pair<size_t, size_t>, Asked> asked_;
  std::vector<Operation> running_;
  uint64_t ids_ = 0;
  uint64_t handle_serials_ = 0;
  uint64_t failed_ = 0;
  bool calm_ = false;
};

}  // namespace braid::sim
