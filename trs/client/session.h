// Session: the client's control side, on the home reactor: makes the path, watches it, makes it
// again.
//
// One coroutine, maintain(), drives the path's states (path_state.h). Everybody else only reports:
// queues by queue_*() and trouble(). The first report takes the path down, once; maintain() then
// waits until every queue is fenced before it goes on.
//
// Threads: the home reactor, except device(), pd(), server(), limits(), post_home(),
// heartbeat_options() and received_count().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "trs/client.h"
#include "trs/client/admin.h"
#include "trs/client/queue.h"
#include "trs/path_state.h"

namespace braid::trs::client {

class Session final : public ClientSession {
 public:
  Session(vhca::Device& device, vhca::Pd& pd, ClientOptions options, SessionUser& user);
  ~Session() override;

  /// The first connect. After an error everything has been taken down again.
  base::Task<base::Status> start();

  // --- for queues, any thread
  vhca::Device& device() { return device_; }
  vhca::Pd& pd() { return pd_; }
  const vhca::Address& server() const { return options_.server; }
  base::Reactor& home() { return home_; }
  const HeartbeatOptions& heartbeat_options() const { return options_.heartbeat; }
  uint64_t received_count() const;
  template <typename Function>
  void post_home(Function function) {
    home_.post([alive = std::weak_ptr<char>(alive_), run = std::move(function)]() mutable {
      if (!alive.expired()) run();
    });
  }
  // --- for queues, on the home reactor
  void queue_connected(Queue& queue, ConnectOutcome outcome);
  void queue_fenced(Queue& queue);
  void queue_stopped(Queue& queue);
  void trouble(base::Error why);
  void info_received(std::span<const std::byte> message);

  // --- ClientSession
  base::Task<void> close() override;
  void drop_path(std::string_view why) override;
  SessionState state() const override;
  const SessionLimits& limits() const override { return limits_; }
  ClientQueue& queue(size_t reactor_index) override;
  base::Task<base::Result<base::Errc>> admin(const AdminRequest& request) override;
  std::string explain() const override;
  std::string peer_text() const override;

 private:
  base::Task<void> maintain();
  base::Task<bool> reconnect();
  base::Task<base::Status> users_turn();
  base::Task<void> turn_failed(base::Error why);
  base::Task<base::Status> attempt();
  base::Task<base::Status> make_connections(uint64_t deadline_ns);
  base::Task<ConnectOutcome> connect_queue(Queue& queue, uint64_t deadline_ns);
  base::Task<base::Status> exchange_info(uint64_t deadline_ns);
  base::Task<void> fence_all();
  base::Task<void> stop_all();
  base::Task<void> back_off(unsigned attempts);
  base::Task<void> changed_before(uint64_t deadline_ns);
  base::Status accept_limits(const wire::ConnRsp& granted);
  void go_up();
  void lose(base::Error why);
  void wake() { changed_->notify_all(); }
  static void give_up(base::Timer& timer);
  void give_up_now();
  void refuse_all(base::Errc status);

  base::Status make_admin_slots();
  void submit_admin(AdminSlot& slot, const AdminRequest& asked, Permit permit);
  static void admin_done(ClientRequest& request, base::Errc status);
  std::string unanswered() const;

  void watch_peer();

  vhca::Device& device_;
  vhca::Pd& pd_;
  const ClientOptions options_;
  SessionUser& user_;
  base::Reactor& home_;
  base::Logger log_;
  StateMachine<ClientPathState> path_;
  std::vector<std::unique_ptr<Queue>> queues_;  // by cid; 0 is the service queue

  wire::Uuid sess_uuid_;
  wire::Uuid paths_uuid_;
  uint16_t recon_cnt_ = 0;
  bool known_to_server_ = false;  // a former connect was accepted
  bool limits_known_ = false;
  SessionLimits limits_;
  wire::ConnRsp granted_;  // of the present attempt
  std::shared_ptr<PathMap> map_;

  bool closing_ = false;
  bool lost_ = false;               // the present path, or the present attempt
  bool usable_ = false;             // requests flow: connected, and the user had its turn
  bool users_turn_ = false;         // SessionUser::reconnected is running
  bool gave_up_ = false;            // no usable path for give_up_after_ns
  std::optional<base::Error> why_;  // the last thing that went wrong
  uint64_t down_since_ns_ = 0;
  std::optional<ConnectOutcome> outcome_;  // of the queue that is connecting
  std::optional<base::Status> info_;       // how the info exchange ended
  size_t fences_due_ = 0;
  size_t stops_due_ = 0;

  std::unique_ptr<base::Segment> admin_memory_;
  std::unique_ptr<vhca::Mr> admin_mr_;
  std::unique_ptr<AdminSlot[]> admin_slots_;  // by permit

  base::Timer give_up_timer_;
  base::Timer wake_timer_;
  // Shared with tasks that wait: one of them may be destroyed after the session when a simulated
  // process dies.
  const std::shared_ptr<base::Signal> changed_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
  base::Task<void> maintain_task_;  // last: goes first
};

}  // namespace braid::trs::client
