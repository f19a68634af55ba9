#include "vhca/soft/device.h"
#include "vhca/soft/inhost/wire.h"
#include "vhca/soft_device.h"

namespace braid::vhca {

base::Result<std::unique_ptr<Device>> create_soft_device(base::Host& host, base::Reactor& control,
                                                         const SoftDeviceOptions& options) {
  soft::inhost::Geometry geometry = soft::inhost::Geometry::for_receives(1, options.payload_bytes);
  if (!geometry.valid()) {
    return base::make_error(base::Errc::kInvalid, "payload_bytes {}; a power of two from {} to {}",
                            options.payload_bytes, soft::inhost::Geometry::kPayloadMin,
                            soft::inhost::Geometry::kPayloadMax);
  }
  soft::inhost::InHostWire::Options wire_options;
  wire_options.payload_bytes = options.payload_bytes;
  auto wire = std::make_unique<soft::inhost::InHostWire>(host, wire_options);
  return soft::SoftDevice::create(host, control, options.name, std::move(wire));
}

}  // namespace braid::vhca
