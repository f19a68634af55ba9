// RDMA devices of this machine as Devices: hardware, and the kernel's software drivers (rxe).
//
// libibverbs.so.1 and librdmacm.so.1 are opened when they are first asked for, never linked: one
// binary runs with and without them. Connections are RDMA CM's, IP port space, RC.
// docs/rdma-devices.md tells how, and what such a device does otherwise than the software HCA.
//
// Threads: list_ibv_devices() any; create and destroy a device on its control reactor's thread, use
// it from any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.h"
#include "base/reactor.h"
#include "base/result.h"
#include "vhca/device.h"

namespace braid::vhca {

struct IbvOptions {
  // Where the libraries are: names for the dynamic loader, or paths.
  std::string ibverbs = "libibverbs.so.1";
  std::string rdmacm = "librdmacm.so.1";
  /// Connects from this IP address, which is the device's, and no other. Empty: from the one of its
  /// own that is nearest to the peer and has a route.
  std::string source_ip;
  /// The memory windows of the kernel's rxe driver, too. For tests, on a wire that loses nothing: a
  /// packet that is lost can hang the machine (docs/rdma-devices.md).
  bool rxe_windows = false;
};

struct IbvPortInfo {
  uint8_t number = 0;
  std::string state;                   // "ACTIVE", "DOWN" ...
  std::string link_layer;              // "Ethernet", "InfiniBand"
  std::vector<std::string> addresses;  // IP addresses of its GIDs, each once
};

struct IbvDeviceInfo {
  std::string name;  // "rxe_a0", "mlx5_0"
  std::string kind;  // for people
  std::vector<IbvPortInfo> ports;
  /// Empty: it can be used now. Else what stands in the way.
  std::string trouble;
};

/// The RDMA devices of this machine, in the kernel's order. kNotSupported: the libraries or the
/// kernel's RDMA drivers are missing, or too old; the words say which, and what to install. Blocks
/// for some system calls.
base::Result<std::vector<IbvDeviceInfo>> list_ibv_devices(const IbvOptions& options = {});

/// The name of the RDMA device that has an IP address. kNotFound: none has. Blocks for some system
/// calls.
base::Result<std::string> ibv_device_with(const std::string& ip, const IbvOptions& options = {});

/// Opens the device of this name. kNotFound names those that there are; kInvalid: `source_ip` is
/// not the device's; kNotSupported as above, and for iWARP, which has no RDMA write with immediate.
base::Result<std::unique_ptr<Device>> create_ibv_device(base::Host& host, base::Reactor& control,
                                                        std::string_view name,
                                                        const IbvOptions& options = {});

}  // namespace braid::vhca
