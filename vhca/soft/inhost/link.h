// InHostLink: the direct link between two QPs of processes on one host.
//
// execute() does what the peer's hardware would do on real wires: it checks the peer's gate and MR
// table and moves the data itself; messages go into the peer's inbound ring.
//
// Threads: the QP's, but for peer_gone().
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "base/host.h"
#include "vhca/soft/inhost/channel.h"
#include "vhca/soft/inhost/fence.h"
#include "vhca/soft/inhost/inbound_ring.h"
#include "vhca/soft/inhost/outbound_ring.h"
#include "vhca/soft/inhost/peer_device.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::inhost {

/// What connects a link to its peer, from the handshake.
struct LinkParts {
  std::unique_ptr<base::Segment> own_segment;   // the inbound segment of this end
  std::unique_ptr<base::Segment> peer_segment;  // that of the other end, mapped
  Geometry own_geometry;
  Geometry peer_geometry;
  std::unique_ptr<base::Event> peer_event;       // null: the peer never sleeps
  std::unique_ptr<base::Event> peer_send_event;  // null: as above, or peer_event tells
  uint32_t peer_qp_number = 0;
  bool own_shares_receives = false;
  bool peer_shares_receives = false;
  Port* port = nullptr;   // ours
  uint64_t retry_ns = 0;  // a request that stays lost for so long fails; 0: never
  std::shared_ptr<PeerDevice> peer;
  std::shared_ptr<Channel> channel;
  bool heavy_fence_exists = true;  // for both processes
};

class InHostLink final : public Link, public ChannelUser, public PortUser {
 public:
  InHostLink(base::Host& host, CopyTable& table, LinkEnd& end, LinkParts parts);
  ~InHostLink() override;

  Execution execute(const Request& request) override;
  Next next_arrival(Arrival& arrival) override;
  void pop_arrival() override { inbound_.pop(); }
  void receive_posted(uint32_t length_bytes, bool usable, std::span<const uint32_t> lkeys) override;
  void no_receive() override;
  void arm(bool armed, bool solicited_only) override;
  bool arm_sends(bool armed) override;
  void qp_changed(uint32_t access, uint8_t min_rnr_timer) override;
  void retries_changed(uint8_t ack_timeout, uint8_t retry_count) override {
    retry_ns_ = retry_ns(ack_timeout, retry_count);
  }
  std::unique_ptr<PeerFence> fence_window(uint32_t key) override;
  bool close() override;

  void peer_gone() override;
  void disconnect() override { end_.disconnected(); }
  void port_changed() override;

 private:
  /// The request, or outcome, whose answer has not come through a port with faults.
  struct Unanswered {
    uint64_t sequence = UINT64_MAX;
    uint64_t since_ns = 0;
    bool executed = false;  // `execution` is what became of it, `word` what an atomic found
    Execution execution;
    uint64_t word = 0;
  };
  Execution execute_now(const Request& request);
  Execution execute_send(const Request& request);
  Execution execute_rdma(const Request& request);
  Execution resolve(const Request& request, uint32_t pd, std::byte*& memory);
  Execution move_data(const Request& request, uint32_t pd);
  bool can_invalidate(uint32_t key) const;
  Execution move_foreign(const Request& request);
  // link_atomic.cc
  Execution execute_atomic(const Request& request);
  Execution change_word(const Request& request, uint32_t pd, uint64_t& before);
  Execution pushed(bool solicited);
  Execution refuse(ibv_wc_status status, ibv_wc_status for_receive);
  Execution not_open(const Request& request, const Gate& gate);
  Execution no_room(OutboundRing::Room room, const Gate& gate);
  void answered_wish();
  Execution ring_broken();
  bool passes(const Gate& gate) const {
    return gate.state == EndState::kOpen || (gate.state == EndState::kTroubled && judged_);
  }
  // link_faults.cc
  Execution execute_hindered(const Request& request);
  Execution execute_once(const Request& request, bool answered);
  Execution unanswered(const Request& request, uint64_t now_ns);
  bool is_early(const Request& request, uint64_t now_ns);
  void publish_gate();

  // What each message touches stands first.
  std::atomic<bool> gone_{false};  // the peer is gone, or broke a rule
  bool closed_ = false;
  bool judged_ = false;                // this request passes the ports, faults or not
  std::atomic<bool> hindered_{false};  // execute_hindered() looks at the ports
  uint64_t last_copy_ = 0;  // closed: the peer's copy that was under way, 0 once it has ended
  const std::shared_ptr<CopyMark> mark_ = std::make_shared<CopyMark>();
  const std::shared_ptr<const PeerCopies> copies_;
  OutboundRing outbound_;
  InboundRing inbound_;
  const std::shared_ptr<PeerDevice> peer_;
  const std::unique_ptr<base::Event> peer_event_;
  const std::unique_ptr<base::Event> peer_send_event_;
  base::Event* const wakes_peer_sends_;  // one of the two, or null
  const uint32_t peer_qp_number_;
  const bool own_shares_receives_;
  const bool peer_shares_receives_;

  Port& port_;
  uint64_t retry_ns_;
  Unanswered unanswered_;
  struct {
    uint64_t sequence = UINT64_MAX;
    uint64_t since_ns = 0;
  } delayed_;  // the request that the port's delay holds back
  std::mutex gate_mutex_;
  Gate gate_;  // gate_mutex_; without the port's faults

  std::atomic<bool> claims_wait_{false};  // for a descriptor, when it was last tried

  base::Host& host_;
  CopyTable& table_;
  LinkEnd& end_;
  const uint32_t pd_;
  const std::shared_ptr<Channel> channel_;
  const std::unique_ptr<base::Segment> peer_segment_;
};

}  // namespace braid::vhca::soft::inhost
