#include "vhca/soft/port.h"

#include "vhca/soft/device.h"

namespace braid::vhca::soft {

base::Status Port::set_faults(const PortFaults& faults) {
  if (faults.duplicate && !can_repeat_) {
    return base::make_error(base::Errc::kNotSupported,
                            "nothing comes twice in shared memory: a ring has no wire that could "
                            "repeat what it carries");
  }
  const auto bit = [](bool set, uint32_t value) { return set ? value : 0u; };
  const std::lock_guard guard(mutex_);
  const uint32_t trouble = bit(faults.lose_sent || faults.down, kLosesSent) |
                           bit(faults.lose_received || faults.down, kLosesReceived) |
                           bit(faults.lose_answers, kLosesAnswers) |
                           bit(faults.duplicate, kDuplicates) | bit(faults.delay_ns != 0, kDelays);
  delay_ns_.store(faults.delay_ns, std::memory_order_relaxed);
  trouble_.store(trouble, std::memory_order_seq_cst);
  const bool was_down = down_.exchange(faults.down, std::memory_order_relaxed);
  for (PortUser* each = users_.front(); each != nullptr; each = users_.next(*each)) {
    each->port_changed();
  }
  if (was_down != faults.down && on_state_ != nullptr) on_state_(!faults.down);
  return base::ok_status();
}

void Port::join(PortUser& user) {
  const std::lock_guard guard(mutex_);
  users_.push_back(user);
}

void Port::leave(PortUser& user) {
  const std::lock_guard guard(mutex_);
  user.unlink();
}

base::Task<bool> pass_port(base::Reactor& reactor, const Port* port) {
  constexpr uint64_t kLookNs = base::kMillisecond;
  if (port == nullptr) co_return true;
  while ((port->trouble() & Port::kConcernsPeers) != 0) co_await reactor.sleep_ns(kLookNs);
  co_return true;
}

PortFaultCounts Port::counts() const {
  return {.lost = lost.load(std::memory_order_relaxed),
          .answers_lost = answers_lost.load(std::memory_order_relaxed),
          .delayed = delayed.load(std::memory_order_relaxed),
          .duplicated = duplicated.load(std::memory_order_relaxed)};
}

}  // namespace braid::vhca::soft

namespace braid::vhca {
namespace {

base::Result<soft::Port*> port_of(Device& device, uint8_t number) {
  auto* const soft = dynamic_cast<soft::SoftDevice*>(&device);
  if (soft != nullptr && number >= 1 && number <= soft->wire().port_count()) {
    if (soft::Port* const port = soft->wire().port(number); port != nullptr) return port;
  } else if (soft != nullptr) {
    return base::make_error(base::Errc::kNotFound, "port {}: device {} has ports 1 to {}", number,
                            device.info().name, soft->wire().port_count());
  }
  return base::make_error(base::Errc::kNotSupported,
                          "no faults can be made at the ports of {} ({}): it was not made with "
                          "port_faults, or its ports are not software",
                          device.info().name, device.info().kind);
}

}  // namespace

base::Status set_port_faults(Device& device, uint8_t port, const PortFaults& faults) {
  BRAID_TRY(soft::Port* const found, port_of(device, port));
  return found->set_faults(faults);
}

base::Result<PortFaultCounts> port_fault_counts(Device& device, uint8_t port) {
  BRAID_TRY(soft::Port* const found, port_of(device, port));
  return found->counts();
}

}  // namespace braid::vhca
