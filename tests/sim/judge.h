// Judge: all checkers of a round in one place, and the book of what clients have under way.
//
// It stands outside every process: it knows what was asked and what was answered, nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/sim.h"
#include "tests/sim/checkers/completion.h"
#include "tests/sim/checkers/device_history.h"
#include "tests/sim/checkers/violations.h"
#include "tests/sim/plan.h"

namespace braid::sim {

class Judge {
 public:
  Judge(base::sim::SimWorld& world, const Plan& plan, base::Logger log);

  uint64_t begin(size_t client, size_t device, const OpDescription& op);
  void end(uint64_t id, base::Errc status, std::span<const std::byte> read_data);
  /// The client's process is about to die.
  void client_dies(size_t client);
  /// The next process of a client has the device open for writing: nothing of its predecessor can
  /// still land.
  void writer_returned(size_t device);
  void server_lost_power();
  /// A disk error was injected into a device's disk, or ended.
  void disk_may_fail(size_t device, bool on);

  /// No fault is active any more: from now on nothing takes longer than kCalmLatencyMaxNs. A
  /// wake-up that gets lost shows here, because the next heartbeat repairs it.
  void calm_begins() { calm_ = true; }
  static constexpr uint64_t kCalmLatencyMaxNs = 100 * base::kMillisecond;

  DeviceHistory& history(size_t device) { return *devices_[device].history; }
  CompletionChecker& completions() { return completions_; }
  Violations& violations() { return violations_; }
  uint64_t failed_operations() const { return failed_; }

 private:
  struct Operation {
    uint64_t id = 0;
    size_t client = 0;
    size_t device = 0;
    OpDescription what;
    uint64_t begin_ns = 0;
    bool calm = false;
    bool may_fail = false;  // a disk error fell into its time
  };
  struct Device {
    std::unique_ptr<DeviceHistory> history;
    bool disk_may_fail = false;
    std::vector<uint64_t> orphans;  // operations of dead clients that may still land
  };
  Operation take(uint64_t id);
  void explain_failures(size_t device);
  void check_latency(const Operation& op);

  base::sim::SimWorld& world_;
  base::Logger log_;
  Violations violations_;
  CompletionChecker completions_{violations_};
  std::vector<Device> devices_;
  std::vector<Operation> running_;
  uint64_t ids_ = 0;
  uint64_t failed_ = 0;
  bool calm_ = false;
};

}  // namespace braid::sim
