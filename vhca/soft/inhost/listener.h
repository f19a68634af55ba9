// InHostListener and InHostRequest: the passive side of the in-host connection manager.
// Private to vhca/soft/inhost.
//
// Threads: the listener's reactor; a request moves to the reactor that accepts it.
#pragma once

#include <list>
#include <memory>

#include "base/limited_log.h"
#include "base/reactor.h"
#include "vhca/soft/candidates.h"
#include "vhca/soft/inhost/channel.h"
#include "vhca/soft/inhost/rendezvous.h"
#include "vhca/soft/inhost/wire.h"
#include "vhca/soft/request_queue.h"

namespace braid::vhca::soft::inhost {

class InHostRequest final : public ConnectRequest {
 public:
  /// `received` is a kRequest.
  InHostRequest(InHostWire& wire, SoftDevice& device, std::unique_ptr<base::LocalSocket> socket,
                Received received);
  ~InHostRequest() override;

  std::span<const std::byte> private_data() const override {
    return received_.message.private_data;
  }
  std::string peer_text() const override;
  base::Task<base::Result<std::unique_ptr<Connection>>> accept(
      base::Reactor& reactor, Qp& qp, ConnectParameters parameters) override;
  void reject(std::span<const std::byte> private_data) override;

 private:
  InHostWire& wire_;
  SoftDevice& device_;
  std::unique_ptr<base::LocalSocket> socket_;  // null: decided
  Received received_;
};

class InHostListener final : public Listener {
 public:
  /// `requests`: where they wait; `backlog` bounds all that wait there.
  InHostListener(InHostWire& wire, SoftDevice& device, base::Reactor& reactor, BoundListener bound,
                 int backlog, std::shared_ptr<RequestQueue> requests);
  ~InHostListener() override;

  base::Task<base::Result<std::unique_ptr<ConnectRequest>>> next() override;
  Address address() const override { return bound_.address; }

 private:
  /// A peer that has connected the socket and has not sent its request yet.
  struct Candidate {
    Candidate(InHostListener& owner, std::unique_ptr<base::LocalSocket> s);
    ~Candidate();
    InHostListener& listener;
    std::unique_ptr<base::LocalSocket> socket;
    const int origin;  // its process
    base::Watch watch;
    base::Timer timer;
    std::list<std::unique_ptr<Candidate>>::iterator self;
  };

  static void somebody_connects(base::Watch& watch);
  static void candidate_speaks(base::Watch& watch);
  static void candidate_is_late(base::Timer& timer);
  static void pause_over(base::Timer& timer);
  void watch_socket(bool watched);
  void accept_sockets();
  void admit(std::unique_ptr<base::LocalSocket> socket);
  void take_request(Candidate& candidate);

  InHostWire& wire_;
  SoftDevice& device_;
  base::Reactor& reactor_;
  const BoundListener bound_;
  const size_t backlog_;
  base::Watch watch_;
  bool watched_ = false;
  base::Timer pause_;  // after a failed accept, or many
  Candidates<Candidate> candidates_;
  base::LimitedLog refusals_;  // of who is no peer
  base::LimitedLog failures_;  // to accept
  const std::shared_ptr<RequestQueue> requests_;
};

/// Refuses a peer for good: tells it why and hangs up.
void reject_peer(base::LocalSocket& socket, CmRejectReason reason,
                 std::span<const std::byte> private_data = {});

}  // namespace braid::vhca::soft::inhost
