// The devices that a node carries its data by: the software HCA, or RDMA devices, one or several.
// A path goes by the device that has its source address, or that the kernel's routes leave by.
//
// Threads: all on the reactor, or before it runs.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "base/result.h"
#include "reach/device_events.h"
#include "reach/target.h"
#include "trs/server.h"
#include "vhca/device.h"

namespace braid::reach {

/// The device that is used if none is named: no RDMA device is called so.
inline constexpr const char* kSoftDevice = "soft0";
/// All RDMA devices that can be used when they are opened.
inline constexpr const char* kRdmaDevices = "rdma";

struct HcaOptions {
  /// Of list_ibv_devices(), several with commas between them, kRdmaDevices, or kSoftDevice. Empty:
  /// kSoftDevice.
  std::string device;
  bool listen_tcp = false;  // for other hosts and users, too; else shared memory inside this host
  /// Servers at addresses of this machine are reached by TCP, as all others are.
  bool tcp_within_host = false;
};

/// `--device`: empty or kSoftDevice, kRdmaDevices, or names with commas between them.
base::Result<std::vector<std::string>> parse_devices(const std::string& text);

/// What this machine says of RDMA devices and routes; tests say other.
struct RdmaMachine {
  /// All that can be used now; an error tells why there is none.
  std::function<base::Result<std::vector<std::string>>()> usable;
  /// The RDMA device that has an IP address.
  std::function<base::Result<std::string>(const std::string& ip)> device_with;
  /// The address by which the kernel's routes lead to another one.
  std::function<base::Result<std::string>(const std::string& ip)> source_to;
  /// Opens one, which connects from `source` only if that is not empty.
  std::function<base::Result<std::unique_ptr<vhca::Device>>(
      base::Host& host, base::Reactor& reactor, const std::string& name, const std::string& source)>
      open;
};
RdmaMachine this_machine();

class Hcas {
 public:
  static base::Result<std::unique_ptr<Hcas>> open(base::Host& host, base::Reactor& reactor,
                                                  const HcaOptions& options,
                                                  RdmaMachine machine = this_machine());

  bool soft() const { return names_.empty(); }
  /// The first, which stands for all where one has to.
  vhca::Device& first() { return *devices_.front(); }
  /// For people: "software HCA, ...", "RDMA devices mlx5_0, mlx5_1".
  std::string text() const;
  /// The device by which a path goes; it stays open. kNotFound, kInvalid: none of them can.
  base::Result<vhca::Device*> for_path(const PathSpec& path);
  using LinkDown = std::function<void(std::span<const vhca::Device* const> adapter, uint8_t port)>;
  /// Called on the reactor when a port of an adapter has lost its link, with all devices that the
  /// adapter is open as. At most one; null: nobody.
  void on_link_down(LinkDown link_down) { link_down_ = std::move(link_down); }
  /// Where a server listens: an address goes to the device that has it, a wildcard to all.
  base::Result<std::vector<trs::ServerEndpoint>> endpoints(
      const std::vector<vhca::Address>& listen);

 private:
  Hcas(base::Host& host, base::Reactor& reactor, const HcaOptions& options, RdmaMachine machine)
      : host_(host),
        reactor_(reactor),
        tcp_within_host_(options.tcp_within_host),
        machine_(std::move(machine)) {}
  void add(std::unique_ptr<vhca::Device> device);
  void listen_to(vhca::Device& device);
  void tell_link_down(const vhca::Device& device, uint8_t port);
  base::Result<vhca::Device*> soft_for(const PathSpec& path);
  base::Result<vhca::Device*> rdma_for(const PathSpec& path);
  base::Result<size_t> index_with(const std::string& ip) const;
  base::Result<vhca::Device*> bound_to(const std::string& name, const std::string& source);

  base::Host& host_;
  base::Reactor& reactor_;
  const bool tcp_within_host_;
  const RdmaMachine machine_;
  std::vector<std::string> names_;  // of RDMA devices; empty: the software HCA
  std::vector<std::unique_ptr<vhca::Device>> devices_;
  std::map<std::string, std::unique_ptr<vhca::Device>> bound_;  // by the address they connect from
  LinkDown link_down_;
  std::vector<std::unique_ptr<DeviceEvents>> events_;  // gone before these are
};

}  // namespace braid::reach
