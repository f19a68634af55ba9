// The software HCA as a Device: inside this host, between hosts, or of a simulated world.
//
// Threads: create and destroy a device on its control reactor's thread; use it from any.
#pragma once

#include <memory>
#include <string>

#include "base/host.h"
#include "base/reactor.h"
#include "base/result.h"
#include "vhca/device.h"

namespace braid::base::sim {
class SimHost;
}

namespace braid::vhca {

struct SimDeviceOptions {
  std::string name = "sim0";
  /// The port of the machine that the device is: it connects from there, and wildcard addresses
  /// listen there only. Empty: the device has all ports of the machine and connects from the first.
  std::string ip;
  /// A power of two. Its table is made at once: worlds that are made by the thousand take few.
  uint32_t registrations_max = 8192;
};

/// A software HCA on the simulated network of the process's world. Addresses are those of
/// SimFabric. kNotFound: the machine has no such port, or none at all.
base::Result<std::unique_ptr<Device>> create_sim_device(base::sim::SimHost& process,
                                                        base::Reactor& control,
                                                        const SimDeviceOptions& options);

struct SoftDeviceOptions {
  std::string name = "soft0";
  /// Per QP: room for SENDs of over 48 bytes that are under way, if the QP does not say that it
  /// expects shorter ones (QpOptions::longest_receive_bytes). A power of two from 4 KiB to 128 KiB;
  /// SENDs above a quarter of it go in fragments.
  uint32_t payload_bytes = 64 * 1024;
};

/// A software HCA that reaches processes of this host and user, through shared memory. Memory from
/// Host::create_segment is reached by plain stores, other memory by system calls (which needs
/// permission to trace: the same user, and no Yama or container rule against it). Listeners take
/// addresses of this host.
base::Result<std::unique_ptr<Device>> create_soft_device(base::Host& host, base::Reactor& control,
                                                         const SoftDeviceOptions& options = {});

struct TcpDeviceOptions {
  std::string name = "tcp0";
  /// The address of this machine that is the device's port: it connects from there. Empty: from
  /// wherever the way to a peer begins.
  std::string ip;
  /// For tests and drills: set_port_faults() may make the port fail, and what a peer says of its
  /// own port's faults is believed. Both ends of a connection need it for the time-outs of RC.
  bool port_faults = false;
};

/// A software HCA that reaches any host over TCP: one connection for each connected QP. Listeners
/// take addresses of this machine. Peers are not authenticated, and nothing is encrypted: whoever
/// can reach a listener can ask it to connect. kNotFound: `ip` is no address of this machine.
base::Result<std::unique_ptr<Device>> create_tcp_device(base::Host& host, base::Reactor& control,
                                                        const TcpDeviceOptions& options = {});

struct HostDeviceOptions {
  std::string name = "soft0";
  uint32_t payload_bytes = 64 * 1024;  // as SoftDeviceOptions
  /// Listeners take peers over TCP, too; else only those of this host, through shared memory.
  bool listen_tcp = false;
  /// Addresses of this machine are reached by TCP as all others are: for servers of other users.
  bool tcp_within_host = false;
  bool port_faults = false;  // as TcpDeviceOptions
};

/// Both in one: peers at addresses of this machine through shared memory, all others by TCP.
base::Result<std::unique_ptr<Device>> create_host_device(base::Host& host, base::Reactor& control,
                                                         const HostDeviceOptions& options = {});

}  // namespace braid::vhca
