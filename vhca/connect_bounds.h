// The bounds of what each side brings to a connection, the same on every device behind the seam.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "vhca/device.h"

namespace braid::vhca {

/// Of responder_resources and initiator_depth. A device may have fewer.
inline constexpr uint8_t kConnectDepthMax = 16;

/// kInvalid, naming the first value that is beyond its bound. Before anything is sent: a peer that
/// has heard of a connection would wait for it. `private_max`: see ConnectParameters.
base::Status check_parameters(const ConnectParameters& parameters, size_t private_max);

}  // namespace braid::vhca
