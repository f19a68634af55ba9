// Session: the client's control side, on the home reactor: begins incarnations, ends them, and has
// the paths.
//
// One coroutine, maintain(), drives incarnations: while one lives, each Path keeps itself; when the
// last connected path is lost, everything is fenced, the user is told, and paths are tried in turn
// until one begins the next incarnation. Everybody else only reports.
//
// Threads: the home reactor, except domain(), home(), limits(), post_home(), heartbeat_options(),
// touch_buffers(), answer_slot(), queues(), queue_of().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "trs/client.h"
#include "trs/client/admin.h"
#include "trs/client/path.h"
#include "trs/client/queue.h"

namespace braid::trs::client {

wire::Uuid random_uuid(base::Host& host);

class Session final : public ClientSession {
 public:
  Session(Domain& domain, ClientOptions options, SessionUser& user);
  ~Session() override;

  /// The first connect. After an error everything has been taken down again.
  base::Task<base::Status> start();

  // --- any thread
  Domain& domain() { return domain_; }
  base::Reactor& home() { return home_; }
  /// Of a request's on connection `cid`.
  uint32_t user_header_bytes_max(uint16_t cid) const {
    return cid == 0 ? wire::kUserHeaderBytesMax : options_.user_header_bytes_max;
  }
  const HeartbeatOptions& heartbeat_options() const { return options_.heartbeat; }
  bool touch_buffers() const { return options_.touch_buffers; }
  /// Where the calling thread runs; always 0 if that is not counted.
  unsigned processor() const { return options_.processor != nullptr ? options_.processor() : 0; }
  /// Where the server writes what it has to say of the request with this permit.
  const std::byte* answer_slot(uint32_t permit) const {
    return answers_->data() + size_t{permit} * wire::kAnswerSlotBytes;
  }
  template <typename Function>
  void post_home(Function function) {
    home_.post([alive = std::weak_ptr<char>(alive_), run = std::move(function)]() mutable {
      if (!alive.expired()) run();
    });
  }
  size_t queues() const { return queues_.size(); }
  Queue& queue_of(size_t cid) { return *queues_[cid]; }
  // --- for queues, on the home reactor
  void queue_returned();
  void queue_stopped();

  // --- for paths
  const wire::Uuid& uuid() const { return paths_uuid_; }
  /// What is offered.
  uint32_t features() const {
    return wire::shown_features(options_.features, options_.reactors.size()) |
           (options_.key ? wire::kFeatureAuthentication : 0);
  }
  /// What both ends prove to have; null: nothing is proved.
  const KeyPtr& key() const { return options_.key; }
  uint32_t shared_features(const wire::ConnRsp& granted) const;
  uint64_t attempt_timeout_ns() const;
  uint64_t bring_up_timeout_ns() const { return options_.reconnect.bring_up_timeout_ns; }
  /// An attempt goes on: what it waits for.
  void still_waits(base::Error why);
  /// Counts the attempts of all paths.
  uint16_t next_attempt() { return ++recon_cnt_; }
  bool known_to_server() const { return known_to_server_; }
  void set_known_to_server(bool known) { known_to_server_ = known; }
  PermitPlan permit_plan(const wire::ConnRsp& granted) const;
  base::Status accept_limits(const wire::ConnRsp& granted, bool begins);
  wire::InfoReq info_request(const wire::ConnRsp& granted, size_t device) const;
  void set_incarnation(const PathMap& map);
  uint32_t epoch() const { return epoch_; }
  bool sequenced() const { return sequenced_; }
  Path* connected_path();
  void path_lost(Path& path);
  /// One has joined the incarnation again.
  void path_joined();
  /// The server knows nothing of a session that has paths yet: they lead nowhere.
  void server_forgot(const base::Error& why);
  /// The life of a path that is meant, if it is still of interest.
  void fenced_at_server(const wire::FenceMsg& fence);
  /// However many come, their user hears of them once in a turn.
  void notice_received();
  base::Task<void> back_off(unsigned attempts, const bool& at_once);
  void wake() { changed_->notify_all(); }
  const std::shared_ptr<base::Signal>& changed() { return changed_; }

  // --- ClientSession
  base::Task<void> close() override;
  void drop_path(std::string_view why) override;
  size_t link_down(std::span<const vhca::Device* const> adapter, uint8_t port) override;
  void set_lost_after(uint64_t lost_after_ns) override;
  uint64_t lineage() const override { return lineage_; }
  SessionState state() const override;
  const SessionLimits& limits() const override { return limits_; }
  ClientQueue& queue(size_t reactor_index) override;
  ClientStatistics statistics(size_t reactor_index) const override;
  size_t reactors() const override { return options_.reactors.size(); }
  const SessionId& id() const override { return paths_uuid_.bytes; }
  base::Task<base::Result<base::Errc>> admin(const AdminRequest& request) override;
  std::string explain() const override;
  std::string peer_text() const override;
  base::Result<size_t> add_path(const PathOptions& path) override;
  base::Task<base::Status> remove_path(size_t id) override;
  base::Status disconnect_path(size_t id) override;
  base::Status reconnect_path(size_t id) override;
  std::vector<PathStatus> paths() const override;
  PathPolicy policy() const override { return options_.policy; }
  void set_policy(PathPolicy policy) override;

 private:
  base::Task<void> maintain();
  base::Task<void> end_incarnation();
  base::Task<bool> reconnect();
  base::Task<base::Status> begin_by(Path& path);
  base::Task<base::Status> try_to_begin(Path& path);
  base::Task<base::Status> users_turn();
  base::Task<void> turn_failed(base::Error why);
  base::Task<base::Status> first_attempts();
  base::Task<void> fence_all();
  base::Task<void> take_back_all();
  base::Task<void> stop_all();
  bool any_connected() const;
  Path* find(size_t id) const;
  Path* next_path();
  size_t usable_paths() const;
  std::string server_text() const;
  std::string paths_text() const;
  std::string why_text() const;
  void path_down(const base::Error& why);
  void go_up(Path& path);
  static void give_up(base::Timer& timer);
  void give_up_now();
  void watch_absence();
  static void lose(base::Timer& timer);
  void be_lost();
  void refuse_all(base::Errc status);

  base::Status make_memory();
  void submit_admin(AdminSlot& slot, const AdminRequest& asked, Permit permit);
  static void admin_done(ClientRequest& request, base::Errc status);
  std::string unanswered() const;

  Domain& domain_;
  ClientOptions options_;
  SessionUser& user_;
  base::Reactor& home_;
  base::Logger log_;
  const wire::Uuid paths_uuid_;
  // Shared with tasks that wait: one of them may be destroyed after the session when a simulated
  // process dies.
  const std::shared_ptr<base::Signal> changed_;
  std::vector<std::unique_ptr<Queue>> queues_;  // by cid; 0 is the service queue
  std::vector<std::unique_ptr<Path>> paths_;    // by id; null: removed

  uint16_t recon_cnt_ = 0;
  bool known_to_server_ = false;  // a former connect was accepted
  bool limits_known_ = false;
  bool may_have_lent_ = false;  // permits, from reactor to reactor
  SessionLimits limits_;
  uint32_t epoch_ = 0;  // of the incarnation, if the server knows such
  bool sequenced_ = false;
  uint32_t last_epoch_ = 0;  // of the last incarnation of which we have heard
  uint64_t lineage_ = 0;     // PathMap::lineage

  bool alive_incarnation_ = false;  // paths keep themselves
  bool closing_ = false;
  bool closed_ = false;
  bool dead_ = false;               // close() has returned
  bool usable_ = false;             // requests flow: a path is up, and the user had its turn
  bool users_turn_ = false;         // SessionUser::reconnected is running
  bool gave_up_ = false;            // no usable path for give_up_after_ns
  bool notice_due_ = false;         // SessionUser::notice() is posted
  bool lost_ = false;               // none for lost_after_ns: no attempt begins any more
  std::optional<base::Error> why_;  // the last thing that went wrong
  uint64_t down_since_ns_ = 0;
  size_t next_path_ = 0;
  bool at_once_ = false;       // the next attempt does not wait
  Path* beginning_ = nullptr;  // by which an incarnation is being begun, its user's turn included
  bool ending_ = false;        // requests of the last incarnation are being taken back
  size_t returns_due_ = 0;
  size_t stops_due_ = 0;

  std::unique_ptr<base::Segment> admin_memory_;
  std::unique_ptr<vhca::Mr> admin_mr_;
  std::unique_ptr<AdminSlot[]> admin_slots_;  // by permit
  std::unique_ptr<base::Segment> answers_;
  std::unique_ptr<vhca::Mr> answers_mr_;

  base::Timer give_up_timer_;
  base::Timer lost_timer_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
  base::Task<void> maintain_task_;  // last: goes first
};

}  // namespace braid::trs::client
