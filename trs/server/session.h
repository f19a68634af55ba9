// Session: one client at the server. Control runs on the home reactor; queues use its tables from
// their reactors.
//
// A session lives as long as its only path. A client that comes back gets a new Session, which
// stays closed until every older one of the same client is gone: so nothing that was abandoned can
// land after what is newer.
//
// Threads: the home reactor, except the section "for queues", which does not change once the
// session is open.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "trs/imm.h"
#include "trs/path_state.h"
#include "trs/server.h"
#include "trs/server/admission.h"
#include "trs/server/lent.h"
#include "trs/server/queue.h"
#include "trs/server/request.h"

namespace braid::trs::server {

class ServerImpl;

class Session final : public ServerSession {
 public:
  Session(ServerImpl& server, std::unique_ptr<vhca::Pd> pd, const wire::ConnReq& request,
          std::string peer_text);
  ~Session();

  // --- ServerSession
  const std::string& name() const override { return name_; }
  std::string peer_text() const override { return peer_text_; }
  bool braid_peer() const override { return braid_peer_; }
  uint32_t queue_depth() const override;
  uint32_t max_io_bytes() const override;

  const wire::Uuid& paths_uuid() const { return paths_uuid_; }
  KnownPath known_path(uint16_t cid) const;
  bool opened() const { return path_.is(ServerPathState::kConnected); }
  /// Takes the connection request for `cid`, which has been admitted.
  void join(uint16_t cid, std::unique_ptr<vhca::ConnectRequest> request);
  /// Starts the end; once. When it is over: ServerImpl::session_ended.
  void close(const std::string& why);
  /// What keeps a session from ending that is being closed.
  std::string holdup() const;
  /// Registers memory that the server lends / lets go of it.
  base::Status borrow(const LentMemory& memory);
  void return_lent(uint32_t slot) { lent_[slot].reset(); }

  // --- for queues
  ServerImpl& server() { return server_; }
  const ImmCodec& codec() const { return codec_; }
  Request* request_of(uint32_t index) { return &requests_[index]; }
  std::span<std::byte> chunk(uint32_t index);
  vhca::Pd& pd() { return *pd_; }
  uint32_t chunk_lkey() const { return chunks_mr_->lkey; }
  /// Of memory from Server::register_memory.
  uint32_t lent_lkey(const vhca::Mr& memory) const {
    return lent_[static_cast<const LentMemory&>(memory).slot()]->lkey;
  }
  uint64_t received_count() const;  // by all connections
  /// The connection on which chunk `index` may be used, or nothing if any may.
  std::optional<uint16_t> owner_of(uint32_t index) const;
  template <typename Function>
  void post_home(Function function) {
    home_.post([alive = std::weak_ptr<char>(alive_), run = std::move(function)]() mutable {
      if (!alive.expired()) run();
    });
  }
  // --- for queues, on the home reactor
  void queue_accepted(base::Status status);
  void queue_opened();
  void queue_quiet();
  void info_requested(std::span<const std::byte> message);
  void trouble(const base::Error& why);
  /// The client broke the protocol: `reason` is one of fixed words, `detail` has the values.
  void breach(const char* reason, const std::string& detail);

 private:
  base::Task<void> bring_up();
  base::Status make_chunks();
  bool bringing_up() const { return path_.is(ServerPathState::kConnecting); }
  static void half_open(base::Timer& timer);

  ServerImpl& server_;
  base::Reactor& home_;
  base::Logger log_;
  StateMachine<ServerPathState> path_;
  std::string name_;
  const std::string peer_text_;
  const wire::Uuid sess_uuid_;
  const wire::Uuid paths_uuid_;
  const uint16_t recon_cnt_;
  const uint16_t cid_num_;
  const bool braid_peer_;
  const bool pinned_;           // kFeaturePinnedPermits
  const bool tells_admin_;      // kFeatureAdminPermits
  uint32_t admin_permits_ = 1;  // on connection 0
  const ImmCodec codec_;

  const std::unique_ptr<vhca::Pd> pd_;           // nobody else's: its keys reach this session only
  std::vector<std::unique_ptr<vhca::Mr>> lent_;  // by LentMemory::slot()
  std::unique_ptr<base::Segment> chunks_;
  std::unique_ptr<vhca::Mr> chunks_mr_;
  std::unique_ptr<Request[]> requests_;         // by chunk index
  std::vector<std::unique_ptr<Queue>> queues_;  // by cid; null until it is accepted
  bool user_knows_ = false;
  size_t accepted_ = 0;
  size_t opens_due_ = 0;
  size_t quiet_due_ = 0;

  base::Timer half_open_timer_;
  base::Signal changed_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
  base::Task<void> bring_up_task_;  // last: goes first
};

}  // namespace braid::trs::server
