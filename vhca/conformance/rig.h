// What the conformance suite runs on: two devices that can reach each other, by whatever wire.
//
// The suite states the contract of vhca/device.h. A new device joins by a factory in rigs().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/reactor.h"
#include "vhca/device.h"
#include "vhca/port_faults.h"

namespace braid::vhca::conformance {

inline constexpr int kClient = 0;
inline constexpr int kServer = 1;

class Rig {
 public:
  virtual ~Rig() = default;
  virtual Device& device(int side) = 0;
  virtual base::Reactor& reactor(int side) = 0;
  /// An address of the server's device that nobody listens on, and that the client can reach.
  virtual Address server_address() = 0;
  /// Lets everything move until `done`; false if it did not come about in a long time (of the
  /// rig's clock).
  virtual bool run_until(const std::function<bool()>& done) = 0;
  /// Lets everything move for a while in which anything that is under way arrives.
  virtual void settle() = 0;
  /// The clock that RNR timers and time-outs run by.
  virtual uint64_t now_ns() = 0;
  /// Memory of a side that lives as long as the rig, zero-filled, page-aligned.
  virtual std::span<std::byte> allocate(int side, size_t bytes) = 0;
  /// Makes a side's port fail so; a default PortFaults mends it. False: this rig cannot.
  virtual bool set_faults(int side, const PortFaults& faults) {
    return set_port_faults(device(side), 1, faults).ok();
  }
  /// Before a QP in INIT goes to RTR by modify() with a peer that nobody is: what the device needs
  /// for that beside the attributes. False: nothing.
  virtual bool prepare_for_rtr(Qp& qp) {
    (void)qp;
    return false;
  }
  /// Counts that the side knows of; where others make the faults, those that are sure.
  virtual PortFaultCounts fault_counts(int side) { return *port_fault_counts(device(side), 1); }
  /// Kills the server's process without clean-up. Only the client's objects may be used after.
  /// False: this rig cannot.
  virtual bool kill_server() { return false; }
};

struct RigFactory {
  std::string name;
  bool virtual_time;                             // upper bounds of durations can be tested
  bool thread_domain;                            // objects are made with a Td
  std::function<std::unique_ptr<Rig>()> create;  // null: cannot be had here, for want of `needs`
  std::string needs;
  /// Private data comes padded with zeroes to the most that there may be.
  bool pads_private_data = false;
  /// How long finding the way to a peer and asking it takes at most.
  uint64_t connect_ns = 20 * base::kMillisecond;
  /// A refused write with immediate has taken a receive, which fails with the refusal's status; by
  /// the contract it takes none, and the receive is flushed.
  bool refusal_takes_receive = false;
  /// Queues hold more than they were asked for: sizes are rounded up.
  bool queues_hold_more = false;
  /// Alternate paths may be there; the suite has none to give.
  bool may_have_alternate_paths = false;
  /// Thousands of round trips would take minutes.
  bool slow = false;
  /// "Suite.Test", and why these devices cannot be asked for that: skipped.
  std::vector<std::pair<std::string, std::string>> cannot;
};
std::vector<RigFactory> rigs();

/// For the names of parameters in the output of failed tests.
inline void PrintTo(const RigFactory& factory, std::ostream* out) {  // NOLINT: gtest's name
  *out << factory.name;
}

}  // namespace braid::vhca::conformance
