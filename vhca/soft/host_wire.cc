#include "vhca/soft/host_wire.h"

#include <utility>

#include "vhca/soft/device.h"
#include "vhca/soft/request_queue.h"

namespace braid::vhca::soft {

using base::Errc;
using base::Result;
using base::Task;

namespace {

/// Two listeners at one address, and the requests of both in one queue.
class BothListeners final : public Listener {
 public:
  BothListeners(std::unique_ptr<Listener> inhost, std::unique_ptr<Listener> tcp)
      : inhost_(std::move(inhost)), tcp_(std::move(tcp)) {}

  /// The other one has the same requests.
  Task<Result<std::unique_ptr<ConnectRequest>>> next() override { return tcp_->next(); }
  Address address() const override { return tcp_->address(); }

 private:
  const std::unique_ptr<Listener> inhost_;
  const std::unique_ptr<Listener> tcp_;
};

inhost::InHostWire::Options inhost_options(const HostDeviceOptions& options) {
  inhost::InHostWire::Options made;
  made.payload_bytes = options.payload_bytes;
  return made;
}

/// A port that is free for TCP may be taken in this host, and the other way round.
constexpr int kPortTries = 16;

}  // namespace

HostWire::HostWire(base::Host& host, const HostDeviceOptions& options)
    : host_(host),
      options_(options),
      inhost_(host, inhost_options(options), port_),
      tcp_(host, "", options.port_faults ? port_ : nullptr) {}

std::string HostWire::kind_text() const {
  if (options_.tcp_within_host) return tcp_.kind_text();
  return inhost_.kind_text() +
         (options_.listen_tcp ? ", TCP to and from others" : ", TCP to others");
}

std::unique_ptr<PeerFence> HostWire::fence_peers(uint32_t key) {
  auto inhost = inhost_.fence_peers(key);
  return both_fences(std::move(inhost), tcp_.fence_peers(key));
}

Result<std::unique_ptr<Listener>> HostWire::listen(SoftDevice& device, base::Reactor& reactor,
                                                   const Address& address, int backlog) {
  if (!options_.listen_tcp) return inhost_.listen(device, reactor, address, backlog);
  for (int tries = 1;; ++tries) {
    auto requests = std::make_shared<RequestQueue>(reactor);
    BRAID_TRY(auto tcp, tcp_.listen(device, reactor, address, backlog, requests));
    auto inhost = inhost_.listen(device, reactor, tcp->address(), backlog, requests);
    if (inhost.ok()) {
      return std::unique_ptr<Listener>(
          std::make_unique<BothListeners>(std::move(*inhost), std::move(tcp)));
    }
    const bool again = address.port == 0 && inhost.code() == Errc::kExists && tries < kPortTries;
    if (!again) return inhost.error();
  }
}

Task<Result<ConnectResult>> HostWire::connect(SoftDevice& device, base::Reactor& reactor,
                                              SoftQp& qp, Address peer,
                                              ConnectParameters parameters, uint64_t timeout_ns) {
  if (!options_.tcp_within_host && host_.is_local_address(peer.ip)) {
    return inhost_.connect(device, reactor, qp, std::move(peer), parameters, timeout_ns);
  }
  return tcp_.connect(device, reactor, qp, std::move(peer), parameters, timeout_ns);
}

}  // namespace braid::vhca::soft

namespace braid::vhca {

base::Result<std::unique_ptr<Device>> create_host_device(base::Host& host, base::Reactor& control,
                                                         const HostDeviceOptions& options) {
  BRAID_CHECK(soft::inhost::check_payload_bytes(options.payload_bytes));
  auto wire = std::make_unique<soft::HostWire>(host, options);
  wire->tcp().limit_complaints(control);
  return soft::SoftDevice::create(host, control, options.name, std::move(wire));
}

}  // namespace braid::vhca
