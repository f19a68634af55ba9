// Injector: does faults to a running round, one after the other and some at once, and counts those
// that had an effect.
#pragma once

#include <cstdint>
#include <functional>

#include "base/sim.h"
#include "tests/sim/faults.h"
#include "tests/sim/plan.h"

namespace braid::sim {

/// What the injector may do to processes and machines; the round does it.
class Victims {
 public:
  virtual ~Victims() = default;
  virtual base::sim::SimHost* server() = 0;              // null while it is down
  virtual base::sim::SimHost* client(size_t index) = 0;  // null while it is down
  virtual base::sim::SimDisk* disk(size_t device) = 0;   // null for a memory device
  virtual void kill_server(bool power) = 0;
  virtual void start_server() = 0;
  virtual void kill_client(size_t index, bool power) = 0;
  virtual void start_client(size_t index) = 0;
  virtual void disk_may_fail(size_t device, bool on) = 0;
};

class Injector {
 public:
  Injector(base::sim::SimWorld& world, const Plan& plan, Victims& victims, base::Logger log);

  /// Faults happen from now on.
  void start() { schedule_next(); }
  /// No new ones; those that last are ended, what is down is started.
  void stop_and_heal();
  const FaultCounts& counts() const { return counts_; }

 private:
  void schedule_next();
  void inject();
  void count(FaultKind kind) { ++counts_[static_cast<size_t>(kind)]; }
  /// Does `begin`, and `end` some time later unless all is healed before. Counted if `effect`
  /// returned another value at the end than at the beginning.
  void for_a_while(FaultKind kind, uint64_t duration_ns, const std::function<void()>& end,
                   const std::function<uint64_t()>& effect);
  void network_fault(FaultKind kind);
  void stop_process(FaultKind kind, base::sim::SimHost* host);
  void kill_server(FaultKind kind);
  void kill_client(FaultKind kind);
  void disk_fault(FaultKind kind);

  base::sim::SimWorld& world_;
  const Plan& plan_;
  Victims& victims_;
  base::sim::SimRandom random_;
  base::Logger log_;
  bool active_ = true;
  FaultCounts counts_{};
};

}  // namespace braid::sim
