// HostWire: one device for peers here and elsewhere. An address of this machine is reached through
// shared memory, any other by TCP; a listener takes both kinds of peers if it is told to.
//
// Threads: any. Private to vhca/soft; create_host_device() makes it.
#pragma once

#include <memory>
#include <string>

#include "vhca/soft/inhost/wire.h"
#include "vhca/soft/tcp/wire.h"
#include "vhca/soft/wire.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft {

class HostWire final : public Wire {
 public:
  HostWire(base::Host& host, const HostDeviceOptions& options);

  std::string kind_text() const override;
  base::Result<PortAttr> query_port(uint8_t port) const override { return tcp_.query_port(port); }
  base::Result<Gid> query_gid(uint8_t port, int index) const override {
    return inhost_.query_gid(port, index);
  }
  uint8_t port_count() const override { return 1; }
  Port* port(uint8_t) override { return options_.port_faults ? port_.get() : nullptr; }
  uint32_t allocate_qp_number() override { return inhost_.allocate_qp_number(); }
  void release_qp_number(uint32_t number) override { inhost_.release_qp_number(number); }

  std::span<MrEntry> mr_table_memory(uint32_t capacity) override {
    return inhost_.mr_table_memory(capacity);
  }
  MrPlace place_memory(std::byte* address, uint64_t length_bytes, uint32_t pd) override {
    return inhost_.place_memory(address, length_bytes, pd);
  }
  void release_memory(const MrPlace& place) override { inhost_.release_memory(place); }
  std::unique_ptr<PeerFence> fence_peers(uint32_t key) override;
  std::unique_ptr<PeerFence> fence_local(uint32_t key) override { return tcp_.fence_local(key); }
  /// Of the peers elsewhere.
  tcp::TcpWire& tcp() { return tcp_; }
  WordChange change_word(const Request& request, const MrView& mr, uint64_t& before) override {
    return inhost_.change_word(request, mr, before);
  }

  base::Result<std::unique_ptr<Listener>> listen(SoftDevice& device, base::Reactor& reactor,
                                                 const Address& address, int backlog) override;
  base::Task<base::Result<ConnectResult>> connect(SoftDevice& device, base::Reactor& reactor,
                                                  SoftQp& qp, Address peer,
                                                  ConnectParameters parameters,
                                                  uint64_t timeout_ns) override;

 private:
  base::Host& host_;
  const HostDeviceOptions options_;
  const std::shared_ptr<Port> port_ = std::make_shared<Port>();  // of both
  inhost::InHostWire inhost_;
  tcp::TcpWire tcp_;
};

}  // namespace braid::vhca::soft
