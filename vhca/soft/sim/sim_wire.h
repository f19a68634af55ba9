// SimWire: the wire of a software HCA in a simulated world. Message links over SimFabric.
//
// Threads: the world's only one.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/sim.h"
#include "vhca/soft/sim/sim_end.h"
#include "vhca/soft/wire.h"

namespace braid::base::sim {
class SimHost;
}

namespace braid::vhca::soft::sim {

inline constexpr size_t kConnectDataMax = 56;
inline constexpr size_t kAcceptDataMax = 196;
inline constexpr size_t kRejectDataMax = 148;

class SimWire final : public Wire {
 public:
  /// `ports`: the IPs of the device's ports, at least one.
  SimWire(base::sim::SimHost& process, std::vector<std::string> ports)
      : process_(process), ports_(std::move(ports)) {}

  std::string kind_text() const override { return "simulated network"; }
  base::Result<PortAttr> query_port(uint8_t port) const override;
  base::Result<Gid> query_gid(uint8_t port, int index) const override;
  uint8_t port_count() const override { return static_cast<uint8_t>(ports_.size()); }
  std::optional<uint64_t> fences() const override { return process_.heavy_fences(); }
  void on_port_state(uint8_t number, std::function<void(bool up)> callback) override;
  uint32_t allocate_qp_number() override;
  void release_qp_number(uint32_t number) override { qp_numbers_.erase(number); }
  base::Result<std::unique_ptr<Listener>> listen(SoftDevice& device, base::Reactor& reactor,
                                                 const Address& address, int backlog) override;
  base::Task<base::Result<ConnectResult>> connect(SoftDevice& device, base::Reactor& reactor,
                                                  SoftQp& qp, Address peer,
                                                  ConnectParameters parameters,
                                                  uint64_t timeout_ns) override;

  /// Keeps an end until the peer has its REJECT, for so long.
  static constexpr uint64_t kLingerMaxNs = 5 * base::kSecond;
  void linger(std::shared_ptr<SimEnd> end);

 private:
  base::Status check_port(uint8_t port) const;

  base::sim::SimHost& process_;
  const std::vector<std::string> ports_;
  std::set<uint32_t> qp_numbers_;
  std::vector<std::shared_ptr<SimEnd>> lingering_;
  std::vector<std::shared_ptr<void>> port_watches_;
};

}  // namespace braid::vhca::soft::sim
