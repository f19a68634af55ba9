// One operation of any length on a device, for the users of the block seam in other layers.
#pragma once

#include "bnbd/frontend/device_op.h"  // IWYU pragma: export
