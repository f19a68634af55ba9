#include "vhca/soft/sim/sim_wire.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/sim.h"
#include "vhca/connect_bounds.h"
#include "vhca/soft/device.h"
#include "vhca/soft/qp.h"
#include "vhca/soft/sim/messages.h"
#include "vhca/soft/sim/sim_connection.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft::sim {

using base::Errc;
using base::make_error;
using base::Result;

// --- ports and numbers

base::Status SimWire::check_port(uint8_t port) const {
  if (port >= 1 && port <= ports_.size()) return base::ok_status();
  return make_error(Errc::kNotFound, "port {}: the device has ports 1 to {}", port, ports_.size());
}

Result<PortAttr> SimWire::query_port(uint8_t port) const {
  BRAID_CHECK(check_port(port));
  PortAttr attr{};
  const bool up = process_.world().fabric().port_up(ports_[port - 1u]);
  attr.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.phys_state = up ? 5 : 3;  // LinkUp, Disabled
  attr.max_mtu = attr.active_mtu = IBV_MTU_4096;
  attr.gid_tbl_len = 1;
  attr.pkey_tbl_len = 1;
  attr.max_msg_sz = kMaxMessageBytes;
  attr.active_width = 2;   // 4x
  attr.active_speed = 32;  // EDR
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  return attr;
}

void SimWire::on_port_state(uint8_t number, std::function<void(bool up)> callback) {
  // Nobody tells a dead process anything.
  auto told = [this, callback = std::move(callback)](bool up) {
    if (!process_.dead()) callback(up);
  };
  base::sim::SimFabric& fabric = process_.world().fabric();
  port_watches_.push_back(fabric.watch_port(ports_[number - 1u], std::move(told)));
}

Result<Gid> SimWire::query_gid(uint8_t port, int index) const {
  BRAID_CHECK(check_port(port));
  if (index != 0) return make_error(Errc::kNotFound, "GID index {}: a port has only 0", index);
  Gid gid{};
  const std::string& ip = ports_[port - 1u];
  if (inet_pton(AF_INET6, ip.c_str(), gid.raw) == 1) return gid;
  gid.raw[10] = gid.raw[11] = 0xff;  // an IPv4 address, mapped
  if (inet_pton(AF_INET, ip.c_str(), gid.raw + 12) == 1) return gid;
  return make_error(Errc::kInvalid, "port {} has no IP address but '{}'", port, ip);
}

uint32_t SimWire::allocate_qp_number() {
  constexpr uint32_t kNumbers = 1u << 24;
  constexpr uint32_t kReserved = 2;  // 0 and 1 name special QPs
  if (qp_numbers_.size() >= kNumbers / 2) return 0;
  uint32_t number = 0;
  process_.random(std::as_writable_bytes(std::span(&number, 1)));
  number %= kNumbers;
  while (number < kReserved || qp_numbers_.contains(number)) number = (number + 1) % kNumbers;
  qp_numbers_.insert(number);
  return number;
}

void SimWire::linger(std::shared_ptr<SimEnd> end) {
  std::erase_if(lingering_,
                [](const auto& each) { return each->phase() != SimEnd::Phase::kDeciding; });
  // Who has it by then may be gone with a farewell that was lost, and who has it not gave up long
  // ago.
  process_.world().after(kLingerMaxNs, [weak = std::weak_ptr(end)] {
    if (const std::shared_ptr<SimEnd> late = weak.lock()) late->close();
  });
  lingering_.push_back(std::move(end));
}

// --- connecting

Result<std::unique_ptr<Listener>> SimWire::listen(SoftDevice&, base::Reactor& reactor,
                                                  const Address& address, int backlog) {
  // A device that is one port of several listens on that one.
  const bool any = address.ip == "0.0.0.0" || address.ip == "::";
  const Address at{.ip = any && ports_.size() == 1 ? ports_.front() : address.ip,
                   .port = address.port};
  return SimListener::create(process_, *this, reactor, at, backlog);
}

namespace {

/// Takes the end back if connecting is given up, so that no reply finds a QP that may be gone.
class Attempt {
 public:
  explicit Attempt(std::shared_ptr<SimEnd> end) : end_(std::move(end)) {}
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  ~Attempt() {
    if (end_ != nullptr) end_->disconnect();
  }
  SimEnd& end() { return *end_; }
  std::shared_ptr<SimEnd> take() { return std::move(end_); }

 private:
  std::shared_ptr<SimEnd> end_;
};

base::Error connect_error(const SimEnd& end, const Address& peer, bool in_time) {
  if (!in_time || end.why() == Errc::kTimedOut) {
    return make_error(Errc::kTimedOut, "no answer from {}:{}", peer.ip, peer.port);
  }
  if (end.why() == Errc::kRefused) {
    return make_error(Errc::kRefused, "nobody listens on {}:{}", peer.ip, peer.port);
  }
  if (end.why() == Errc::kBusy) {
    return make_error(Errc::kRefused, "the listener on {}:{} has a full backlog", peer.ip,
                      peer.port);
  }
  if (end.why() == Errc::kInvalid) {
    return make_error(Errc::kInvalid, "the QP was modified while connecting to {}:{}", peer.ip,
                      peer.port);
  }
  return make_error(end.why(), "{}:{} went away while connecting", peer.ip, peer.port);
}

}  // namespace

base::Task<Result<ConnectResult>> SimWire::connect(SoftDevice&, base::Reactor& reactor, SoftQp& qp,
                                                   Address peer, ConnectParameters parameters,
                                                   uint64_t timeout_ns) {
  BRAID_CO_CHECK(check_parameters(parameters, kConnectDataMax));
  Attempt attempt(std::make_shared<SimEnd>(reactor));
  const std::string& local_ip = ports_.front();
  const base::sim::FabricAddress to{.ip = peer.ip, .port = peer.port};
  auto channel = process_.world().fabric().connect(
      process_, local_ip, to, retry_budget(parameters), attempt.end(),
      encode_cm(Kind::kConnect, qp.number(), parameters.private_data));
  if (!channel.ok()) co_return channel.error();
  attempt.end().open(std::move(*channel));
  attempt.end().offer(qp, parameters);

  base::Task<bool> deciding = attempt.end().decided();
  const std::optional<bool> established =
      co_await reactor.with_timeout(std::move(deciding), timeout_ns);
  ConnectResult result;
  if (established.value_or(false)) {
    result.connection = std::make_unique<SimConnection>(attempt.take());
    co_return result;
  }
  if (attempt.end().phase() == SimEnd::Phase::kRejected) {
    const std::span<const std::byte> data = attempt.end().peer_private_data();
    result.reject_private_data.assign(data.begin(), data.end());
    co_return result;
  }
  co_return connect_error(attempt.end(), peer, established.has_value());
}

}  // namespace braid::vhca::soft::sim

namespace braid::vhca {

base::Result<std::unique_ptr<Device>> create_sim_device(base::sim::SimHost& process,
                                                        base::Reactor& control,
                                                        const SimDeviceOptions& options) {
  std::vector<std::string> ports = process.world().fabric().ports_of(process);
  if (ports.empty()) {
    return base::make_error(base::Errc::kNotFound, "machine of process {} has no port",
                            process.name());
  }
  if (!options.ip.empty()) {
    if (std::find(ports.begin(), ports.end(), options.ip) == ports.end()) {
      return base::make_error(base::Errc::kNotFound, "machine of process {} has no port {}",
                              process.name(), options.ip);
    }
    ports = {options.ip};
  }
  auto wire = std::make_unique<soft::sim::SimWire>(process, std::move(ports));
  return soft::SoftDevice::create(process, control, options.name, std::move(wire),
                                  options.registrations_max);
}

}  // namespace braid::vhca
