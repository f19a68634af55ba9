// The parts of a node that live on its reactor (private to cli/node*.cc).
//
// Threads: the reactor's, but for NodeImpl's public calls.
#pragma once

#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "bnbd/io_process.h"
#include "bnbd/kernel_device.h"
#include "bnbd/remote.h"
#include "bnbd/server.h"
#include "cli/control.h"
#include "cli/node.h"
#include "cli/target.h"
#include "vhca/soft_device.h"

namespace braid::cli {

/// Who comes first acts, the others wait.
class Turns {
 public:
  explicit Turns(base::Reactor& reactor) : freed_(reactor) {}
  base::Task<void> take() {
    while (taken_) co_await freed_.wait();
    taken_ = true;
  }
  void give_back() {
    taken_ = false;
    freed_.notify_all();
  }

 private:
  bool taken_ = false;
  base::Signal freed_;
};

/// A session to one server, shared by the devices from there.
struct SharedSession {
  SharedSession(base::Reactor& reactor, std::string server)
      : key(std::move(server)), turns(reactor) {}
  const std::string key;                         // "ip:port"
  std::unique_ptr<bnbd::RemoteSession> session;  // null while it is being opened or closed
  unsigned devices = 0;  // that use it or are about to; it goes with the last
  Turns turns;           // to open and close it
};

/// A remote device that the kernel has.
struct MappedDevice {
  std::string name;
  bool busy = true;    // somebody maps or unmaps it: others wait
  std::string target;  // "ip:port/export"
  SharedSession* session = nullptr;
  std::unique_ptr<bnbd::RemoteDevice> remote;
  bool remote_closed = false;  // an unmap with force got this far, and perhaps no further
  std::unique_ptr<bnbd::KernelDevice> kernel;  // null while it is attached or after it is gone
};

/// What a node does, on its reactor. Calls on different devices do not wait for each other: a
/// server that hangs keeps nobody from another.
class NodeState {
 public:
  NodeState(base::Host& host, base::Reactor& reactor, vhca::Device& hca, NodeOptions options,
            std::vector<bnbd::IoProcessStep> io_process);

  bool wants_server() const { return options_.serve.has_value(); }
  base::Status start_server();
  base::Task<base::Result<nlohmann::json>> call(std::string method, nlohmann::json params);
  base::Task<base::Status> stop(bool force);

 private:
  // node_devices.cc
  base::Task<base::Result<nlohmann::json>> map(nlohmann::json params);
  base::Task<base::Status> map_claimed(MappedDevice& device, vhca::Address server,
                                       bnbd::RemoteDeviceOptions options,
                                       bnbd::KernelDeviceKind kind);
  base::Task<base::Result<nlohmann::json>> unmap(nlohmann::json params);
  base::Task<base::Status> unmap_claimed(MappedDevice& device, bool force);
  base::Task<base::Result<SharedSession*>> join(vhca::Address server);
  base::Task<void> close_remote(MappedDevice& device);
  base::Task<void> forget(MappedDevice& device);
  base::Task<void> leave(SharedSession& session);
  MappedDevice* device_named(const std::string& name);
  base::Task<MappedDevice*> claim(std::string name);
  void give_back(MappedDevice& device);

  // node_status.cc
  nlohmann::json status() const;
  nlohmann::json device_status(const MappedDevice& device) const;
  nlohmann::json server_status() const;

  base::Host& host_;
  base::Reactor& reactor_;
  vhca::Device& hca_;
  const NodeOptions options_;
  const std::vector<bnbd::IoProcessStep> io_process_;
  std::unique_ptr<bnbd::ExportServer> server_;
  std::list<SharedSession> sessions_;
  std::list<MappedDevice> devices_;  // in the order of mapping
  base::Signal devices_changed_;     // one is no longer busy, or gone
  bool stopping_ = false;            // nothing new is mapped
};

}  // namespace braid::cli
