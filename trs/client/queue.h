// Queue: one connection of a client path with its permits and requests, on its reactor.
//
// Connection 1 + i is the I/O queue of reactors[i]; connection 0 is the service queue, which also
// carries the info exchange, heartbeats and admin requests (the lowest permits).
//
// Where a request is, in the order of its life:
//   held_       the path is down, or there is no send slot; in submission order
//   in_flight_  on the wire; table_[slot of its permit] points to it; in submission order
//   ending_     refused (closed, given up); `done` runs in the next poll
// When the path is lost, in_flight_ goes back in front of held_, but only after the connection has
// been drained: from then on no buffer is read or written for the lost path.
//
// Threads: the queue's own reactor, apart from the section "from the home reactor", whose calls
// reach it by message. The queue
// answers there by Session's queue_*() and trouble().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trs/client.h"
#include "trs/connection.h"
#include "trs/heartbeat.h"
#include "trs/imm.h"
#include "trs/permit_pool.h"
#include "trs/wire.h"

namespace braid::trs::client {

class Session;

/// What the server announced for a path: where the chunks lie. Shared by all queues, never changed:
/// the keys are those of the beginning, a queue keeps those of its permits' chunks.
struct PathMap {
  explicit PathMap(uint32_t queue_depth) : codec(queue_depth), chunks(queue_depth) {}
  ImmCodec codec;
  std::vector<wire::ChunkRegion> chunks;
  bool braid_peer = false;
};

/// Which permits there are: the lowest are for admin requests. Fixed at the first connect.
struct PermitPlan {
  uint32_t queue_depth = 0;
  uint32_t admin = 1;
};

/// How one connection attempt ended.
struct ConnectOutcome {
  base::Status status;
  int rejected_errno = 0;  // the server's, if it refused
  wire::ConnRsp granted;
};

class Queue final : public ClientQueue,
                    private ConnectionUser,
                    private HeartbeatOwner,
                    private base::Poller {
 public:
  Queue(Session& session, uint16_t cid, uint16_t cid_num, base::Reactor& reactor);
  ~Queue() override;
  base::Reactor& reactor() { return reactor_; }
  uint16_t cid() const { return cid_; }

  // --- from the home reactor
  /// Ends in Session::queue_connected. `plan` is what connection 0 was granted (none yet for
  /// connection 0 itself).
  void connect(const wire::ConnReq& request, PermitPlan plan, uint64_t timeout_ns);
  /// Requests may go on the wire of the new path.
  void resume(std::shared_ptr<const PathMap> map);
  /// Judges the peer's signs of life from now on, until the connection is fenced: those by this
  /// connection, or for a peer with one heartbeat per path those by any.
  void watch_peer(bool whole_path);
  /// Takes the connection down and drains it; an attempt to connect ends with kCanceled. Ends in
  /// Session::queue_fenced.
  void fence();
  /// From now on requests end with `status`, those held included; kOk: they are held again.
  void refuse(base::Errc status);
  /// For good. Ends in Session::queue_stopped; then the object may go. The path is fenced.
  void stop();
  /// What has come from the peer since ever. Any thread.
  uint64_t received_count() const { return received_.load(std::memory_order_relaxed); }

  // --- connection 0, on the home reactor, which is its own
  bool send_message(std::span<const std::byte> message);
  std::string peer_text() const { return connection_ ? connection_->peer_text() : std::string(); }

  // --- ClientQueue
  Permit acquire() override;
  void wait_for_permit(PermitWaiter& waiter) override;
  void submit(ClientRequest& request) override;
  bool cancel(ClientRequest& request) override;
  ClientStatistics statistics() const override;

 private:
  template <typename Function>
  void run_here(Function function) {
    reactor_.post([alive = std::weak_ptr<char>(alive_), run = std::move(function)]() mutable {
      if (!alive.expired()) run();
    });
  }
  base::Status prepare(PermitPlan plan);
  base::Task<void> run_connect(wire::ConnReq request, uint64_t timeout_ns);
  base::Task<ConnectOutcome> try_connect(wire::ConnReq request, uint64_t timeout_ns);
  void end_connect(ConnectOutcome outcome);
  void go_up(std::shared_ptr<const PathMap> map);
  void begin_fence();
  void fenced();
  void put_on_wire(ClientRequest& request);
  uint32_t fill_header(const ClientRequest& request, std::byte* at) const;
  void hold(ClientRequest& request);
  bool send_held();
  void refuse_held();
  bool end_refused();
  bool serve_waiters();
  void answered(AnswerImm answer, uint32_t bytes);
  void poison(base::Error why);
  void finish(ClientRequest& request, base::Errc status);
  void trouble(base::Error why);
  void count_received() { received_.store(received_count() + 1, std::memory_order_relaxed); }
  static void channel_ready(base::Watch& watch);

  void give_back(uint32_t index) override;
  void received_imm(Connection& connection, uint32_t imm, uint32_t bytes) override;
  void received_message(Connection& connection, std::span<const std::byte> message) override;
  void received_answer(Connection& connection, uint32_t imm,
                       std::span<const std::byte> message) override;
  void failed(Connection& connection, base::Error why) override;
  bool poll() override;
  bool arm() override;
  uint64_t listen() override;
  void send_heartbeat() override;
  void peer_silent(uint64_t silent_ns) override;

  Session& session_;
  base::Reactor& reactor_;
  const uint16_t cid_;
  const uint16_t cid_num_;
  const bool service_;  // connection 0: its requests are never held over a loss
  std::atomic<uint64_t> received_{0};

  std::unique_ptr<vhca::Td> td_;
  std::unique_ptr<vhca::CompChannel> channel_;
  base::Watch watch_;
  std::unique_ptr<Connection> connection_;
  bool connecting_ = false;
  bool fencing_ = false;
  bool up_ = false;        // requests may go on the wire
  bool was_up_ = false;    // ever
  bool stopped_ = false;   // for good
  bool poisoned_ = false;  // the peer broke the protocol: nothing more of it is believed
  base::Errc refuse_ = base::Errc::kOk;
  bool whole_path_ = false;  // the heartbeat counts what comes by any connection
  HeartbeatDriver heartbeat_;
  std::shared_ptr<const PathMap> map_;

  std::optional<PermitPool> permits_;
  std::vector<ClientRequest*> table_;  // by the permit's slot; null: not in flight
  std::vector<uint32_t> chunk_keys_;   // by the permit's slot
  base::IntrusiveList<ClientRequest> in_flight_;
  base::IntrusiveList<ClientRequest> held_;
  base::IntrusiveList<ClientRequest> ending_;
  base::IntrusiveList<PermitWaiter> waiters_;
  ClientStatistics statistics_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
  base::Task<void> connect_task_;  // last: goes first
};

}  // namespace braid::trs::client
