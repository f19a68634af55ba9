// InHostWire: the software HCA's way to reach peers inside this host (docs/in-host-wire.md).
// Private to vhca/soft; create_soft_device() makes it.
//
// Threads: any. Outlives the device's listeners, connections and QPs.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/host.h"
#include "vhca/soft/inhost/cm_messages.h"
#include "vhca/soft/inhost/exports.h"
#include "vhca/soft/inhost/fence.h"
#include "vhca/soft/inhost/peer_device.h"
#include "vhca/soft/inhost/qp_numbers.h"
#include "vhca/soft/request_queue.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::inhost {

/// kInvalid, naming the bounds.
base::Status check_payload_bytes(uint32_t payload_bytes);

class InHostWire final : public Wire {
 public:
  struct Options {
    uint32_t payload_bytes = 65536;  // per QP, for SENDs that are under way; a power of two
    uint64_t handshake_bound_ns = 5 * base::kSecond;  // for a peer's next message
  };
  /// `port`: that of a device of which this wire is a part.
  InHostWire(base::Host& host, const Options& options, std::shared_ptr<Port> port = nullptr);

  std::string kind_text() const override { return "shared memory inside this host"; }
  base::Result<PortAttr> query_port(uint8_t port) const override;
  base::Result<Gid> query_gid(uint8_t port, int index) const override;
  uint8_t port_count() const override { return 1; }
  Port* port(uint8_t) override { return port_.get(); }
  uint32_t allocate_qp_number() override { return qp_numbers_.allocate(); }
  void release_qp_number(uint32_t number) override { qp_numbers_.release(number); }

  std::span<MrEntry> mr_table_memory(uint32_t capacity) override;
  MrPlace place_memory(std::byte* address, uint64_t length_bytes, uint32_t pd) override {
    return exports_.place(address, length_bytes, pd);
  }
  void release_memory(const MrPlace& place) override { exports_.release(place); }
  std::unique_ptr<PeerFence> fence_peers(uint32_t key) override;
  /// For peers of another wire of the device.
  WordChange change_word(const Request& request, const MrView& mr, uint64_t& before) override;

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

  // --- for the connection manager and the links
  base::Host& host() { return host_; }
  const Options& options() const { return options_; }
  const DeviceId& id() const { return id_; }
  uint32_t mr_capacity() const { return mr_capacity_; }
  const base::Handle* mr_table_handle() const { return &mr_table_->handle(); }
  Port& own_port() { return *port_; }
  Exports& exports() { return exports_; }
  CopyTable& copies() { return copies_; }
  PeerTable& peers() { return peers_; }
  /// kPermission for a process of another user; kNoMemory without an MR table.
  base::Status check_peer(const base::PeerIdentity& identity) const;

 private:
  base::Task<base::Result<std::unique_ptr<base::LocalSocket>>> dial(base::Reactor& reactor,
                                                                    Address peer,
                                                                    uint64_t deadline_ns);

  base::Host& host_;
  const Options options_;
  const std::shared_ptr<Port> port_;
  DeviceId id_;
  QpNumbers qp_numbers_;
  Exports exports_;
  CopyTable copies_;
  PeerTable peers_;
  std::atomic<bool> claims_wait_{false};  // for a descriptor, when it was last tried
  std::unique_ptr<base::Segment> mr_table_;
  uint32_t mr_capacity_ = 0;
};

}  // namespace braid::vhca::soft::inhost
