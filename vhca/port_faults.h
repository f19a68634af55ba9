// Faults of a software HCA's ports, made on purpose (docs/port-faults.md): for tests and drills.
//
// Threads: any.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "vhca/device.h"

namespace braid::vhca {

/// What is wrong with a port. Requests and answers are those of RC: requests that are lost, or
/// whose answers are, end with RETRY_EXC after ack_timeout * (retry_count + 1) of their connection;
/// if all is well again before, they go on and each is executed once.
struct PortFaults {
  bool lose_sent = false;      // what the port sends is lost: requests of its QPs, and answers
  bool lose_received = false;  // what is sent to it is lost. With lose_sent: a black hole
  bool lose_answers = false;   // what its QPs answer is lost; the requests have been executed
  bool down = false;           // a black hole that the port knows of: query_port, PORT_ERR
  bool duplicate = false;      // what passes comes twice; not through shared memory
  uint64_t delay_ns = 0;       // what the port sends goes so much later, in order

  friend bool operator==(const PortFaults&, const PortFaults&) = default;
};

/// What faults of a port did, since the device was made.
struct PortFaultCounts {
  uint64_t lost = 0;          // tries of requests that did not arrive
  uint64_t answers_lost = 0;  // requests that were executed, and the answer did not come at first
  uint64_t delayed = 0;       // requests, or frames, that waited
  uint64_t duplicated = 0;    // that came twice
};

/// Sets all of a port's faults; a default PortFaults mends it. They hold for what the port's QPs
/// send and receive from now on. kNotSupported: a device whose ports are others' (hardware, the
/// simulated network), without `port_faults`, or with no such fault; kNotFound: no such port.
base::Status set_port_faults(Device& device, uint8_t port, const PortFaults& faults);
/// Errors as above. Counts are those that this side knows of.
base::Result<PortFaultCounts> port_fault_counts(Device& device, uint8_t port);

}  // namespace braid::vhca
