#include "vhca/device_faults.h"

#include <vector>

#include "vhca/soft/cq.h"
#include "vhca/soft/device.h"
#include "vhca/soft/qp.h"

namespace braid::vhca {

base::Result<bool> inject_device_fault(Device& device, DeviceFault fault, uint64_t which) {
  auto* const soft = dynamic_cast<soft::SoftDevice*>(&device);
  if (soft == nullptr) {
    return base::make_error(base::Errc::kNotSupported, "{} ({}) fails by itself only",
                            device.info().name, device.info().kind);
  }
  std::vector<soft::SoftCq*> cqs;
  for (soft::SoftCq* cq : soft->cqs())
    if (cq->has_connected()) cqs.push_back(cq);
  if (cqs.empty()) return false;
  soft::SoftCq& chosen = *cqs[which % cqs.size()];
  if (fault == DeviceFault::kCqOverrun) {
    chosen.overrun_by_fault();
  } else {
    chosen.fail_connected(which / cqs.size());
  }
  return true;
}

}  // namespace braid::vhca
