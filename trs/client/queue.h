// Queue: one reactor's part of a session: its permits and requests, and a lane for each path.
//
// The I/O queue of reactors[i] has cid 1 + i; the service queue has cid 0 and carries admin
// requests (the lowest permits), the info exchange, control messages and heartbeats.
//
// Where a request is, in the order of its life:
//   held_            no lane is up, or none has a send slot; in submission order
//   lane.in_flight   on the wire, or was until its path was lost; table_[slot of its permit] has it
//   ending_          refused (closed, given up); `done` runs in the next poll
// When a path is lost its lane is drained first: from then on no buffer is read or written for it.
// Then fail_over() or take_back() puts what was in flight in front of held_.
//
// Threads: the queue's own reactor, apart from the section "from the home reactor", whose calls
// reach it by message. The queue answers there by Session's and Path's calls.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/single_writer.h"
#include "trs/client.h"
#include "trs/client/lane.h"
#include "trs/client/lending.h"
#include "trs/imm.h"
#include "trs/permit_pool.h"
#include "trs/wire.h"

namespace braid::trs::client {

class Session;

class Queue final : public ClientQueue, private base::Poller {
 public:
  /// What it has of one device.
  struct Share {
    std::unique_ptr<vhca::Td> td;
    std::unique_ptr<vhca::CompChannel> channel;
    base::Watch watch;
  };

  Queue(Session& session, uint16_t cid, uint16_t cid_num, base::Reactor& reactor);
  ~Queue() override;
  base::Reactor& reactor() { return reactor_; }
  Session& session() { return session_; }
  uint16_t cid() const { return cid_; }

  // --- from the home reactor; `path` is its number
  void add_lane(size_t number, Path& path, LaneStatistics& statistics);
  /// The lane is fenced and what it had is taken. Ends in Path::lane_removed.
  void remove_lane(size_t path);
  /// Ends in Path::lane_connected. `plan` is what connection 0 was granted (none yet for
  /// connection 0 itself).
  void connect(size_t path, const wire::ConnReq& request, PermitPlan plan, uint64_t timeout_ns);
  /// Requests may go on the wire of the path.
  void resume(size_t path, std::shared_ptr<const PathMap> map);
  /// Judges the peer's signs of life from now on, until the connection is fenced.
  void watch_peer(size_t path, Watching watching);
  /// Takes the connection down and drains it; an attempt to connect ends with kCanceled. Ends in
  /// Path::lane_fenced.
  void fence(size_t path);
  /// What was in flight on the fenced lane goes by others.
  void fail_over(size_t path);
  /// The incarnation is over and every lane is fenced: all is held for the next one. Ends in
  /// Session::queue_returned.
  void take_back();
  /// From now on requests end with `status`, those held included; kOk: they are held again.
  void refuse(base::Errc status);
  void set_policy(PathPolicy policy);
  /// For good. Ends in Session::queue_stopped; then the object may go. All lanes are fenced.
  void stop();

  // --- from the reactors of other queues of the session, which reach it by message
  /// They are short of permits, and have these.
  void ask(uint16_t by_cid, PermitHolding asker);
  void take_loan(const Loan& loan);

  // --- connection 0, on the home reactor, which is its own
  bool send_message(size_t path, std::span<const std::byte> message);
  bool probe(size_t path);
  std::string peer_text() const;

  // --- for lanes
  /// What lasts over reconnects.
  base::Status prepare(size_t device, PermitPlan plan);
  Share& share(size_t device) { return *shares_[device]; }
  /// Requests that one connection may have on the wire.
  uint32_t in_flight_max() const { return in_flight_max_; }
  /// There may be something to do in poll() again.
  void wake() {
    if (!watched_ || (base::Poller::linked() && !polled_seldom_)) return;
    base::Poller::unlink();
    polled_seldom_ = false;
    reactor_.add(*this);
  }
  void lane_down(Lane& lane);
  void lane_fenced(Lane& lane);
  void answered(Lane& lane, AnswerImm answer, uint32_t bytes);

  /// Any thread: all but what is of its lanes.
  ClientStatistics counts() const;

  // --- ClientQueue
  Permit acquire() override;
  Permit acquire_first() override;
  void set_reserve(uint32_t permits) override { reserve_ = permits; }
  uint32_t permits() const override { return permits_ ? permits_->size() : 0; }
  void wait_for_permit(PermitWaiter& waiter) override;
  void submit(ClientRequest& request) override;
  bool cancel(ClientRequest& request) override;
  bool has_path() const override { return !up_.empty(); }
  ClientStatistics statistics() const override;

 private:
  /// A permit's newest request.
  struct Slot {
    ClientRequest* request = nullptr;  // in flight
    Lane* lane = nullptr;              // by which it went
    uint32_t sequence = 0;
    uint32_t epoch = 0;  // the incarnation that has counted to `sequence`
  };
  /// One who is short, and was promised permits that come back.
  struct Debt {
    PermitHolding asker;
    uint32_t promised = 0;
  };
  template <typename Function>
  void run_here(Function function) {
    reactor_.post([alive = std::weak_ptr<char>(alive_), run = std::move(function)]() mutable {
      if (!alive.expired()) run();
    });
  }
  template <typename Function>
  void run_now_or_here(Function function);
  Lane* pick();
  Lane* pick_in_turn();
  void put_on_wire(ClientRequest& request, Lane& lane);
  uint32_t fill_header(const ClientRequest& request, const Lane& lane, std::byte* at) const;
  uint32_t fill_plain(const ClientRequest& request, const Lane& lane, std::byte* at) const;
  uint32_t fill_sequenced(const ClientRequest& request, const Lane& lane, std::byte* at) const;
  void make_permits(PermitPlan plan);
  void begin_incarnation(const PathMap& map);
  void end_incarnation();
  void plant_in_failover();
  void take_from(Lane& lane);
  void hold(ClientRequest& request);
  void end_request(ClientRequest& request, base::Errc status);
  bool send_held();
  void refuse_held();
  bool end_refused();
  PermitWaiter* next_waiter();
  bool serve_waiters();
  PermitHolding holding();
  bool is_short();
  void ask_if_short();
  void ask_others();
  void lend(uint16_t to_cid, uint32_t count);
  void pay_debts();
  void pay_debt();
  void stop_lending();
  std::optional<base::Errc> read_slot(ClientRequest& request, uint32_t index) const;
  void finish(ClientRequest& request, base::Errc status);
  static void channel_ready(base::Watch& watch);
  static void time_to_ask(base::Timer& timer);

  void give_back(uint32_t index) override;
  bool poll() override;
  bool has_work() const;
  void rest();
  void begin_arm() override;
  bool arm() override;
  bool awaits() const override;

  Session& session_;
  base::Reactor& reactor_;
  const uint16_t cid_;
  const uint16_t cid_num_;
  const bool service_;  // its requests are never held over the end of an incarnation

  std::vector<std::unique_ptr<Share>> shares_;  // by device; null: not used yet
  std::vector<std::unique_ptr<Lane>> lanes_;    // by the path's number; null: removed
  std::vector<Lane*> up_;                       // those by which requests may go
  PathPolicy policy_;
  size_t turn_ = 0;
  size_t requests_ = 0;   // chosen for by kMinLatency
  uint32_t epoch_ = 0;    // of the incarnation; 0: there is none
  uint64_t lineage_ = 0;  // of the last one: PathMap::lineage
  bool was_up_ = false;   // ever
  bool stopped_ = false;  // for good
  bool watched_ = false;  // polled by the reactor, unless it rests
  bool polled_seldom_ = false;
  base::Errc refuse_ = base::Errc::kOk;

  std::optional<PermitPool> permits_;
  std::vector<Slot> table_;  // by permit
  uint32_t in_flight_max_ = 0;
  bool lends_ = false;
  uint32_t share_ = 0;     // permits that it began with
  base::Timer ask_timer_;  // while it is short
  uint64_t ask_again_at_ns_ = 0;
  uint64_t ask_pause_ns_ = 0;  // doubles while nobody has any
  std::vector<Debt> debts_;    // by cid
  uint32_t debts_open_ = 0;    // promised to all of them
  uint32_t returned_ = 0;      // permits that came back since the first of them
  uint32_t reserve_ = 0;       // what its users keep
  uint16_t next_debt_ = 0;
  base::IntrusiveList<ClientRequest> held_;
  base::IntrusiveList<ClientRequest> ending_;
  base::IntrusiveList<PermitWaiter> waiters_;
  ClientStatistics statistics_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace braid::trs::client
