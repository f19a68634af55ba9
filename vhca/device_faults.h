// Faults of a software HCA itself, made on purpose: what an adapter does to queue pairs without
// anybody's doing. For simulation and tests; faults of ports are in port_faults.h.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "vhca/device.h"

namespace braid::vhca {

enum class DeviceFault : uint8_t {
  kQpError,    // a connected QP goes to ERR: QP_FATAL, and what it has is flushed
  kCqOverrun,  // a CQ of connected QPs is overrun: CQ_ERR, and all its QPs fail so
};

/// Strikes the `which`-th of what the device has, modulo how many there are, in the order of their
/// CQs' making. False: it has no connected QP. kNotSupported: the device is hardware.
/// Threads: the control reactor's, while no other uses the device.
base::Result<bool> inject_device_fault(Device& device, DeviceFault fault, uint64_t which);

}  // namespace braid::vhca
