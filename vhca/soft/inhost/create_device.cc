#include "vhca/soft/device.h"
#include "vhca/soft/inhost/wire.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft::inhost {

base::Status check_payload_bytes(uint32_t payload_bytes) {
  if (Geometry::for_receives(1, payload_bytes).valid()) return base::ok_status();
  return base::make_error(base::Errc::kInvalid, "payload_bytes {}; a power of two from {} to {}",
                          payload_bytes, Geometry::kPayloadMin, Geometry::kPayloadMax);
}

}  // namespace braid::vhca::soft::inhost

namespace braid::vhca {

base::Result<std::unique_ptr<Device>> create_soft_device(base::Host& host, base::Reactor& control,
                                                         const SoftDeviceOptions& options) {
  BRAID_CHECK(soft::inhost::check_payload_bytes(options.payload_bytes));
  soft::inhost::InHostWire::Options wire_options;
  wire_options.payload_bytes = options.payload_bytes;
  auto wire = std::make_unique<soft::inhost::InHostWire>(host, wire_options);
  return soft::SoftDevice::create(host, control, options.name, std::move(wire));
}

}  // namespace braid::vhca
