// The simulated world, for the layers above: SimWorld, SimMachine, SimHost, SimDisk, SimFabric.
// See docs/simulator.md.
#pragma once

#include "base/sim/disk.h"     // IWYU pragma: export
#include "base/sim/fabric.h"   // IWYU pragma: export
#include "base/sim/host.h"     // IWYU pragma: export
#include "base/sim/machine.h"  // IWYU pragma: export
#include "base/sim/medium.h"   // IWYU pragma: export
#include "base/sim/random.h"   // IWYU pragma: export
#include "base/sim/world.h"    // IWYU pragma: export
