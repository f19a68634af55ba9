// Lane: one connection of a path on its queue's reactor, and the requests in flight on it.
//
//   connect() -> go_up() -> requests ... begin_fence() -> drained; what was in flight stays here
//             until the queue takes it: for another path, or for the next incarnation
//
// Thread: the queue's reactor. What it has to tell goes to its Path by message.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "base/intrusive_list.h"
#include "trs/client.h"
#include "trs/client/lane_statistics.h"
#include "trs/connection.h"
#include "trs/heartbeat.h"
#include "trs/imm.h"
#include "trs/wire.h"

namespace braid::trs::client {

class Path;
class Queue;

/// What the server announced for a path: where the chunks lie, and of which incarnation they are.
/// Shared by all lanes, never changed: the keys are those of the beginning, a lane keeps those that
/// are valid.
struct PathMap {
  explicit PathMap(uint32_t queue_depth) : codec(queue_depth), chunks(queue_depth) {}
  ImmCodec codec;
  std::vector<wire::ChunkRegion> chunks;
  bool braid_peer = false;
  bool sequenced = false;
  bool answer_slots = false;
  bool lends = false;          // permits may go from reactor to reactor
  bool counted_keys = false;   // a chunk's key goes up by one with each answer
  bool notices = false;        // the server may send them
  bool keeps_answers = false;  // when the incarnation is over
  bool one_thread = false;     // at both ends, of all connections of the path
  uint32_t epoch = 0;
  /// Incarnations by which the server knows the same numbers; counts those at whose beginning it
  /// did not.
  uint64_t lineage = 0;
};

/// Which permits there are: the lowest are for admin requests. Fixed at the first connect.
struct PermitPlan {
  uint32_t queue_depth = 0;
  uint32_t admin = 1;
  bool lends = false;
};

/// How one connection attempt ended.
struct ConnectOutcome {
  base::Status status;
  int rejected_errno = 0;  // the server's, if it refused
  uint8_t port = 0;        // of our device, by which the connection goes; 0: not known
  wire::ConnRsp granted;
};

/// The errno of a server's refusal, in words.
std::string reject_text(int sys_errno);

class Lane final : private ConnectionUser, private HeartbeatOwner {
 public:
  Lane(Queue& queue, Path& path, LaneStatistics& statistics);
  ~Lane() override;

  /// Ends in Path::lane_connected.
  void connect(const wire::ConnReq& request, PermitPlan plan, uint64_t timeout_ns);
  void go_up(std::shared_ptr<const PathMap> map);
  void watch_peer(Watching watching);
  /// Ends in Path::lane_fenced, when nothing of the connection can land any more.
  void begin_fence();
  bool send_message(std::span<const std::byte> message);
  /// Connection::post_probe().
  bool probe();
  bool poll();
  /// There is nothing to poll, until Queue::wake().
  bool rests() const;
  bool dozes() const;  // Connection::dozes()
  void arm();
  std::string peer_text() const { return connection_ ? connection_->peer_text() : std::string(); }

  // --- data path, for the queue
  bool up() const { return up_; }
  bool can_send() const { return up_ && connection_->can_send(); }
  Connection& connection() { return *connection_; }
  const PathMap& map() const { return *map_; }
  size_t device() const { return device_; }
  /// The key of a chunk now.
  uint32_t chunk_key(uint32_t index) const { return chunk_keys_[index]; }
  /// The server has answered to a request in it.
  void chunk_answered(uint32_t index) {
    if (map_->counted_keys) chunk_keys_[index] = ibv_inc_rkey(chunk_keys_[index]);
  }
  /// How long an answer takes, to choose a lane by: the moving average, or the age of the first
  /// request since the last answer, if that is longer. So a path that has gone silent is left
  /// before heartbeats end it, and one is not for a single request that hangs.
  uint64_t latency_ns(uint64_t now_ns) const;
  void count_request(uint64_t now_ns) {
    if (unanswered_since_ns_ != 0) return;
    unanswered_since_ns_ = now_ns;
    heartbeat_.hurry();
  }
  void count_answer(uint64_t ns);
  /// The peer broke the protocol: nothing more of it is believed.
  void breach(base::Error why);

  base::IntrusiveList<ClientRequest> in_flight;  // in the order in which they were sent
  LaneStatistics& statistics;
  Path& path;

 private:
  base::Task<void> run_connect(wire::ConnReq request, uint64_t timeout_ns);
  base::Task<ConnectOutcome> try_connect(wire::ConnReq request, uint64_t timeout_ns);
  void end_connect(ConnectOutcome outcome);
  void fenced();
  void trouble(base::Error why);
  void come_down();

  void received_imm(Connection& connection, uint32_t imm, uint32_t bytes) override;
  void received_message(Connection& connection, std::span<const std::byte> message) override;
  void received_answer(Connection& connection, uint32_t imm,
                       std::span<const std::byte> message) override;
  void woken(Connection& connection) override;
  void failed(Connection& connection, base::Error why) override;
  Heartbeat::Signs listen() override;
  Traffic traffic() const override;
  uint64_t heard_ns() const override { return connection_->heard_ns(); }
  void send_heartbeat() override;
  void peer_silent(uint64_t silent_ns) override;

  Queue& queue_;
  const size_t device_;
  std::unique_ptr<Connection> connection_;
  bool connecting_ = false;
  bool fencing_ = false;
  bool up_ = false;  // requests may go on the wire
  bool poisoned_ = false;
  Watching watching_ = Watching::kAlways;
  uint64_t latency_ns_ = 0;           // moving average; 0: nothing has been answered
  uint64_t unanswered_since_ns_ = 0;  // the first request since the last answer; 0: there is none
  HeartbeatDriver heartbeat_;
  std::shared_ptr<const PathMap> map_;
  std::vector<uint32_t> chunk_keys_;  // by chunk
  base::Task<void> connect_task_;     // last: goes first
};

}  // namespace braid::trs::client
