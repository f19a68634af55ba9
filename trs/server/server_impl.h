// ServerImpl: listens, admits, and keeps the sessions. Thread: the home reactor, apart from
// options() and user() for queues.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/limited_log.h"
#include "trs/server.h"
#include "trs/server/connect_rate.h"
#include "trs/server/kept_answers.h"
#include "trs/server/lent.h"
#include "trs/server/session.h"
#include "trs/server/worker.h"

namespace braid::trs::server {

class ServerImpl final : public Server {
 public:
  ServerImpl(vhca::Device& device, ServerOptions options, ServerUser& user);
  ~ServerImpl() override;
  base::Status start();

  // --- Server
  vhca::Address address() const override { return endpoints_.front()->listener->address(); }
  std::vector<vhca::Address> addresses() const override;
  base::Result<std::unique_ptr<vhca::Mr>> register_memory(std::byte* address,
                                                          uint64_t length_bytes) override;
  base::Task<void> stop() override;
  base::Task<base::Status> stop_within(uint64_t limit_ns) override;
  std::vector<ServerSession*> sessions() override;
  ServerStatistics statistics() const override;
  base::Result<size_t> set_keys(std::shared_ptr<const KeyRing> keys) override;

  // --- for sessions and queues
  vhca::Device& device(size_t endpoint) { return *endpoints_[endpoint]->device; }
  const ServerOptions& options() const { return options_; }
  /// What is offered to Braid clients.
  uint32_t features() const { return wire::shown_features(options_.features, workers_.size()); }
  uint32_t chunk_bytes() const { return chunk_bytes_; }
  ServerUser& user() { return user_; }
  base::Reactor& home() { return home_; }
  Worker& worker(size_t index) { return *workers_[index % workers_.size()]; }
  /// Whether an older session of the same client has not ended yet.
  bool has_predecessor(const Session& session) const;
  /// Waits for the end of some session.
  base::Signal& session_changed() { return *changed_; }
  void count_opened() { ++statistics_.sessions_opened; }
  /// By which a session's I/O connections begin another reactor further than the last session's.
  size_t next_spread() { return spreads_++; }
  void count_breach(const char* reason) { ++statistics_.breaches[reason]; }
  void count_refused_key(const char* reason) { ++statistics_.keys_refused[reason]; }
  /// By worker; the same for all sessions of a client (ServerSession::client()).
  std::shared_ptr<TurnShare[]> turn_shares(const std::string& client);
  uint64_t next_path_number() { return ++paths_made_; }
  /// Null: no client has to prove anything.
  const std::shared_ptr<const KeyRing>& keys() const { return keys_; }
  /// A path whose client has proved this key: it takes its place. 0, or why not, as an errno.
  int admit_proven(Path& path, const KeyPtr& key);
  void session_ended(Session& session);
  /// What a former session of the same client has answered.
  std::optional<KeptSession> take_kept_answers(const Session& session) {
    return kept_answers_.take(session.paths_uuid(), session.key_name(), session.cid_num());
  }
  /// Whether the session of a path that is complete, and was half open until now, may open.
  base::Status check_room(Path& path) const;
  LentQuota& lent_quota(size_t endpoint) { return *endpoints_[endpoint]->lent; }
  void take_back(uint32_t slot);
  /// A line about a peer that misbehaves; at most a few of an address are written per second.
  void complain(const std::string& peer_text, const std::string& line) {
    complaints_.of(address_of(peer_text)).warning("{}", line);
  }
  /// A line about sessions and paths that come and go, as often as their clients like.
  template <typename... Args>
  void say_of(const std::string& peer_text, base::LogLevel level,
              fmt::format_string<Args...> format, Args&&... args) {
    comings_.of(address_of(peer_text)).log(level, format, std::forward<Args>(args)...);
  }

 private:
  struct Endpoint {
    vhca::Device* device = nullptr;
    std::unique_ptr<vhca::Listener> listener;
    LentQuota* lent = nullptr;
    base::Task<void> accept_task;
  };
  LentQuota& quota_of(vhca::Device& device);
  base::Status add_endpoint(vhca::Device& device, const vhca::Address& listen);
  base::Task<void> accept_loop(size_t endpoint);
  void handle(size_t endpoint, std::unique_ptr<vhca::ConnectRequest> request);
  void take(size_t endpoint, const wire::ConnReq& asked, Session* session, Admission::Kind kind,
            std::unique_ptr<vhca::ConnectRequest> request);
  void take_unproven(size_t endpoint, const wire::ConnReq& asked, Session* session,
                     Admission::Kind kind, std::unique_ptr<vhca::ConnectRequest> request);
  bool shows_proof(wire::ConnReq& asked, Session* session, vhca::ConnectRequest& request);
  Admission judge(const wire::ConnReq& asked, Session* session, const std::string& peer_text) const;
  Room room_from(const std::string& address, const wire::Uuid* but_of) const;
  bool make_half_open_room(size_t connections, const Session* but);
  Session* half_open_victim(const Session* but) const;
  std::vector<Path*> unproven() const;
  size_t proven_sessions() const;
  void remember_left_behind(const Session& session);
  Session* newest(const wire::Uuid& paths_uuid);
  size_t lives_of(const wire::Uuid& paths_uuid) const;
  Session& add_session(std::unique_ptr<Session> session);
  void reject(vhca::ConnectRequest& request, int sys_errno, const std::string& why);
  void begin_stop();
  void stop_workers();
  std::string holdups() const;

  vhca::Device& device_;  // of the first endpoint
  const ServerOptions options_;
  const uint32_t chunk_bytes_;
  std::shared_ptr<const KeyRing> keys_;
  ServerUser& user_;
  base::Reactor& home_;
  base::LimitedLog complaints_, comings_;
  std::array<LentMemory*, kLentMax> lent_{};
  std::vector<std::unique_ptr<LentQuota>> lent_quotas_;  // of the devices
  std::atomic<size_t> session_count_{0};                 // of sessions_, for the workers
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<std::string, std::weak_ptr<TurnShare[]>> turn_shares_;  // by client
  size_t spreads_ = 0;
  ServerStatistics statistics_;
  uint64_t paths_made_ = 0;
  ConnectRate connect_rate_;
  KeptAnswers kept_answers_;
  bool stopping_ = false;
  bool workers_stopping_ = false;
  size_t stops_due_ = 0;
  // Shared with stop(), which may be destroyed after the server when a simulated process dies.
  const std::shared_ptr<base::Signal> changed_;
  std::vector<std::unique_ptr<Session>> sessions_;  // the newest last
  // Memory of sessions that have ended, while a client stands in the middle of a copy into it. It
  // keeps a session's place: else there would be no bound to it.
  struct LeftBehind {
    std::string address;
    std::weak_ptr<base::Segment> memory;
  };
  std::vector<LeftBehind> left_behind_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
  std::vector<std::unique_ptr<Endpoint>> endpoints_;  // last: their tasks go first
};

}  // namespace braid::trs::server
