// Path: one path of a session at the client: its connections, its states, how it is made again.
//
// The first path of an incarnation is made by the Session (attempt() with no epoch). As long as the
// incarnation lives, keep() runs for each path: it waits for the path's loss, has what was in
// flight taken to another one, and joins the incarnation again.
//
// Threads: the home reactor, except post_home(), server(), device_index() and received_count().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "trs/client.h"
#include "trs/client/lane.h"
#include "trs/handshake.h"
#include "trs/path_state.h"

namespace braid::trs::client {

class Session;

class Path {
 public:
  Path(Session& session, size_t number, const PathOptions& options);
  ~Path();

  size_t number() const { return number_; }
  const vhca::Address& server() const { return options_.server; }
  size_t device_index() const { return options_.device; }
  /// Of that device, once it has been connected; 0: not known.
  uint8_t port() const { return port_; }
  const wire::Uuid& uuid() const { return uuid_; }
  /// Requests may flow by it.
  bool connected() const { return state_.is(ClientPathState::kConnected) && !lost_; }
  bool lost() const { return lost_; }
  bool disabled() const { return disabled_; }
  /// Its user has asked for its removal: nobody else may.
  bool removing() const { return removing_; }
  void set_removing() { removing_ = true; }
  const base::Error& why() const { return *why_; }
  uint64_t received_count() const;  // by all connections; any thread
  PathStatus status() const;
  const LaneStatistics& lane_statistics(size_t cid) const { return *statistics_[cid]; }
  std::string text() const;  // "10.0.0.1:1234"

  // --- for the session
  /// Connects all, and exchanges info, to begin an incarnation or to join the session's own.
  base::Task<base::Status> attempt(bool begins);
  /// The path carries requests from here on.
  void go_up();
  /// Takes the path, or the attempt to make it, down; once. Its lanes are being fenced.
  void lose(base::Error why);
  base::Task<void> fenced();
  /// A new life: what was lost before does not count any more.
  void reset() { lost_ = false; }
  void mark_connected() { state_.set(ClientPathState::kConnected, "info exchange done"); }
  /// Disconnected by its operator, and nothing of it is in flight any more.
  bool idle() const {
    return disabled_ && !state_.is(ClientPathState::kConnected) && fences_due_ == 0;
  }
  /// After a loss, when the lanes are fenced.
  void mark_down(const base::Error& why);
  void start_keeping();
  void stop_keeping() { keep_task_ = {}; }
  /// Once in an absence, as an attempt has failed: that is its operator's to mend.
  void tell_shortage(const base::Error& why);
  void set_disabled(bool disabled);
  void close();  // states; the lanes are fenced
  base::Task<void> remove();
  const std::shared_ptr<PathMap>& map() const { return map_; }
  const wire::ConnRsp& granted() const { return granted_; }
  /// The server has ended a life of a path. True if it is this one's present life.
  bool fenced_at_server(const wire::FenceMsg& fence);
  bool send_fence(const wire::Uuid& path, uint16_t recon_cnt);

  // --- for lanes
  template <typename Function>
  void post_home(Function function) {
    home_.post([alive = std::weak_ptr<char>(alive_), run = std::move(function)]() mutable {
      if (!alive.expired()) run();
    });
  }
  // --- for lanes, on the home reactor
  void lane_connected(ConnectOutcome outcome);
  void lane_fenced();
  void lane_removed();
  void trouble(base::Error why) { lose(std::move(why)); }
  void message_received(std::span<const std::byte> message);
  /// False: none may come.
  bool notice_received();

 private:
  base::Task<void> keep();
  base::Task<void> rejoin();
  base::Task<void> move_requests();
  base::Task<base::Status> make_connections(bool begins, uint64_t deadline_ns);
  base::Task<ConnectOutcome> connect_lane(uint16_t cid, uint32_t joins, uint64_t deadline_ns);
  base::Task<base::Status> prove(uint64_t deadline_ns);
  void take_proof(std::span<const std::byte> message);
  base::Status check_joined(const ConnectOutcome& outcome) const;
  base::Task<base::Status> exchange_info(uint64_t deadline_ns);
  base::Task<base::Status> await_info(uint64_t deadline_ns);
  void take_info(std::span<const std::byte> message);
  base::Task<base::Status> await_answer(const std::optional<base::Status>& answer,
                                        uint64_t deadline_ns, const char* late);
  void watch_peer();

  Session& session_;
  base::Reactor& home_;
  const size_t number_;
  const PathOptions options_;
  base::Logger log_;
  StateMachine<ClientPathState> state_;
  const wire::Uuid uuid_;
  std::vector<std::unique_ptr<LaneStatistics>> statistics_;  // by cid

  uint16_t recon_cnt_ = 0;  // of the present attempt
  wire::ConnReq request_;   // the last connect of the present attempt, without proof
  wire::ConnRsp granted_;   // of the present attempt
  uint8_t port_ = 0;        // of its first connection
  std::optional<ClientHandshake> handshake_;  // of the present attempt, if there is a key
  std::optional<base::Status> proof_;         // how it went
  std::optional<wire::InfoReq> asked_;        // the info request that was sent
  std::shared_ptr<PathMap> map_;
  bool lost_ = false;      // the present path, or the present attempt
  bool disabled_ = false;  // by its operator
  bool removing_ = false;
  bool at_once_ = false;  // the next attempt does not wait
  bool fenced_there_ = false;
  bool unknown_there_ = false;             // PathStatus::unknown_there
  std::optional<base::Error> why_;         // the last thing that went wrong
  std::optional<ConnectOutcome> outcome_;  // of the lane that is connecting
  std::optional<base::Status> info_;       // how the info exchange ended
  uint64_t reconnects_ = 0, reconnects_failed_ = 0;
  bool was_up_ = false;
  bool shortage_told_ = false;  // since it was up
  size_t fences_due_ = 0;
  size_t removals_due_ = 0;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
  base::Task<void> keep_task_;  // last: goes first
};

}  // namespace braid::trs::client
