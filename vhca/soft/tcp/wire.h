// TcpWire: the software HCA's way to peers on other hosts (docs/tcp-wire.md), one TCP connection
// for each connected QP. Private to vhca/soft; create_tcp_device() makes it.
//
// Threads: any. Outlives the device's listeners, connections and QPs.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/host.h"
#include "vhca/soft/request_queue.h"
#include "vhca/soft/tcp/link_watch.h"
#include "vhca/soft/tcp/stream.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::tcp {

class TcpWire final : public Wire {
 public:
  /// `ip`: connections come from there; empty: from wherever the way to the peer begins.
  /// `port`: whose faults are made on purpose; null: none are, and no peer's are believed.
  TcpWire(base::Host& host, std::string ip, std::shared_ptr<Port> port = nullptr)
      : host_(host), ip_(std::move(ip)), port_(std::move(port)) {}

  ~TcpWire() override { complaints_->close(); }
  std::string kind_text() const override;
  base::Result<PortAttr> query_port(uint8_t port) const override;
  base::Result<Gid> query_gid(uint8_t port, int index) const override;
  uint8_t port_count() const override { return 1; }
  Port* port(uint8_t) override { return port_.get(); }
  void on_port_state(uint8_t number, std::function<void(bool up)> callback) override;
  uint32_t allocate_qp_number() override;
  void release_qp_number(uint32_t number) override;
  std::unique_ptr<PeerFence> fence_peers(uint32_t key) override;
  std::unique_ptr<PeerFence> fence_local(uint32_t key) override { return fence_peers(key); }

  base::Result<std::unique_ptr<Listener>> listen(SoftDevice& device, base::Reactor& reactor,
                                                 const Address& address, int backlog) override;
  /// As listen(), for listeners that share their requests, and so the backlog and their end.
  base::Result<std::unique_ptr<Listener>> listen(SoftDevice& device, base::Reactor& reactor,
                                                 const Address& address, int backlog,
                                                 std::shared_ptr<RequestQueue> requests);
  base::Task<base::Result<ConnectResult>> connect(SoftDevice& device, base::Reactor& reactor,
                                                  SoftQp& qp, Address peer,
                                                  ConnectParameters parameters,
                                                  uint64_t timeout_ns) override;

  /// From now on lines about peers are logged by this reactor, on whose thread the wire ends: a few
  /// of each address.
  void limit_complaints(base::Reactor& control) { complaints_->open(control, host_.log()); }
  /// From now on the port knows of its link, and tells. For a device that has an address; on its
  /// control reactor's thread, as is the end of the wire then.
  void watch_link(base::Reactor& control);

  // --- for the connection manager
  base::Host& host() { return host_; }
  const std::shared_ptr<Port>& shared_port() const { return port_; }
  const std::shared_ptr<ComplaintBox>& complaints() const { return complaints_; }
  /// For a new stream; kept for as long as the stream keeps it.
  std::shared_ptr<Activity> add_activity();
  uint32_t random_word();

 private:
  base::Task<base::Result<ConnectResult>> exchange(base::Reactor& reactor, SoftQp& qp, Address peer,
                                                   ConnectParameters parameters);

  base::Host& host_;
  const std::string ip_;
  const std::shared_ptr<Port> port_;
  const std::shared_ptr<ComplaintBox> complaints_ = std::make_shared<ComplaintBox>();
  PortState state_;
  std::unique_ptr<LinkWatch> link_watch_;  // the control reactor's
  std::mutex mutex_;                       // guards all below
  std::set<uint32_t> qp_numbers_;
  std::vector<std::shared_ptr<Activity>> activities_;
};

}  // namespace braid::vhca::soft::tcp
