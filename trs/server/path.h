// Path: one path of a session at the server: its connections, its keys, its states.
//
//   join() of each connection, info request -> connected -> close() -> drained -> ended
//
// At a server with keys a path is unproven at first: it has connection 0 and nothing else, nobody
// finds it, and it changes nothing for others, until its client has proved its key and the server
// lets it in (ServerImpl::admit_proven).
//
// A path never waits for the server's user: what came by it and is still there when it ends stays
// with the session, to be answered by another path, or by none.
//
// Threads: the home reactor, except the section "for queues", which does not change once the path
// is connected.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "trs/handshake.h"
#include "trs/path_state.h"
#include "trs/server/admission.h"
#include "trs/server/landing.h"
#include "trs/server/lent.h"
#include "trs/server/queue.h"
#include "trs/wire.h"

namespace braid::trs::server {

class Session;

/// A client that has all it needs sends its info request at once; this is for those who died.
inline constexpr uint64_t kHalfOpenNs = 10 * base::kSecond;
/// From the connect until the proof, where one is due.
inline constexpr uint64_t kUnprovenNs = 5 * base::kSecond;
/// A client that is refused goes by itself, once it has read why.
inline constexpr uint64_t kRefusedNs = base::kSecond;

class Path {
 public:
  /// `endpoint`: that of the server by which it came.
  Path(Session& session, size_t endpoint, std::unique_ptr<vhca::Pd> pd,
       const wire::ConnReq& request, std::string peer_text, bool proof_due);
  ~Path();

  const wire::Uuid& uuid() const { return uuid_; }
  /// Counts the paths of the server: which is older.
  uint64_t number() const { return number_; }
  const wire::ConnReq& asked() const { return asked_; }  // of connection 0
  /// Its client has proved its key, or need not.
  bool proven() const { return proven_; }
  /// Whose turns it takes: before its client has proved that it is the session's, those of its
  /// address.
  std::shared_ptr<TurnShare> turn_share(const Worker& worker) const;
  /// Whether a connect request, one with a proof in the place of sess_uuid, is of this path; then
  /// its name is put there.
  bool proves_join(wire::ConnReq& request) const;
  uint16_t recon_cnt() const { return asked_.recon_cnt; }
  /// Whether it is this life of a path of its name, or an older one: serial numbers wrap.
  bool is_of(uint16_t recon_cnt) const {
    return static_cast<int16_t>(static_cast<uint16_t>(recon_cnt - asked_.recon_cnt)) >= 0;
  }
  const std::string& peer_text() const { return peer_text_; }
  /// Its address_of().
  const std::string& peer_address() const { return peer_address_; }
  KnownPath known(uint16_t cid) const;
  bool connected() const { return state_.is(ServerPathState::kConnected); }
  bool live() const { return bringing_up() || connected(); }
  /// Half open: it is its client's turn, to ask or to make further connections.
  bool waits_for_client() const { return bringing_up() && client_due_; }
  /// Takes the connection request for `cid`, which has been admitted.
  void join(const wire::ConnReq& asked, std::unique_ptr<vhca::ConnectRequest> request);
  /// Starts the end; once. When it is over: Session::path_ended.
  void close(const std::string& why);
  /// The same for an unproven one, counted by one of the words of `refusal`.
  void end_unproven(const char* reason, const std::string& why);
  /// It has been closed, with its session, which does not wait for a client that stands in a copy.
  void give_up_draining();
  /// A worker thread registers its memory: until that has come back the path does not end.
  bool registering() const { return on_worker_; }
  /// Tells the client by connection 0 that another path has ended.
  void send_fenced(const wire::Uuid& path, uint16_t recon_cnt);
  /// Tells the client, which takes notices, by connection 0.
  void send_notice() { queues_[0]->send_notice(); }
  /// The session uses more memory than before: registers it, if it carries requests already.
  void use_lent();
  void return_lent(uint32_t slot) { lent_.take_back(slot); }
  /// Not, where a request may come by it: there it would miss the memory.
  bool may_go_without(uint32_t slot) const { return !live() || !has_lent_ || lent_.has(slot); }

  // --- for queues
  Session& session() { return session_; }
  size_t endpoint() const { return endpoint_; }
  vhca::Pd& pd() { return *pd_; }
  ChunkGuard guard() const { return guard_; }
  /// Where the client's requests arrive.
  std::span<std::byte> landing(uint32_t chunk);
  Window& window(uint32_t chunk) { return landing_->window(chunk); }
  vhca::SendWr bind_of(const Window& window) const { return landing_->bind_of(window); }
  /// The data of a request that outlives the path lies there; null: in the session's chunks.
  std::shared_ptr<base::Segment> landing_memory() const {
    return landing_ ? landing_->memory() : nullptr;
  }
  uint32_t chunk_lkey() const { return chunks_mr_->lkey; }
  /// Of memory that the session uses.
  uint32_t lent_lkey(const vhca::Mr& memory) const {
    return lent_.lkey(static_cast<const LentMemory&>(memory).slot());
  }
  /// Whether the device can send invalidations (SEND_WITH_INV). A client that asks for one and gets
  /// none is told so by its answer, and does it itself.
  bool invalidates() const { return invalidates_; }
  /// Where answers may write, if the client takes answer slots.
  const std::optional<wire::ChunkRegion>& answers() const { return answers_; }
  uint64_t received_count() const;                   // by all connections
  std::vector<ServedStatistics> statistics() const;  // by cid
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
  void message_received(std::span<const std::byte> message);
  void trouble(const base::Error& why);
  void tell_shortage(const base::Error& why);
  /// The client broke the protocol: `reason` is one of fixed words, `detail` has the values.
  void breach(const char* reason, const std::string& detail);

 private:
  base::Task<void> bring_up(wire::ParsedInfoReq info);
  base::Task<base::Status> register_all();
  template <typename T>
  base::Task<base::Result<T>> on_worker(std::function<base::Result<T>()> make);
  base::Task<base::Result<std::unique_ptr<vhca::Mr>>> register_memory(std::byte* address,
                                                                      uint64_t length_bytes,
                                                                      int access,
                                                                      std::shared_ptr<void> memory);
  base::Task<base::Status> register_lent();
  base::Task<base::Result<std::unique_ptr<vhca::Mr>>> register_one(const LentMemory& memory);
  base::Task<void> catch_up();
  base::Task<base::Status> make_landing();
  base::Task<base::Result<std::unique_ptr<Landing>>> create_landing();
  void answer_info();
  std::span<const std::byte> compose_info();
  bool bringing_up() const { return state_.is(ServerPathState::kConnecting); }
  void info_requested(std::span<const std::byte> message);
  void authenticate(std::span<const std::byte> message);
  void proved();
  void refuse(int sys_errno, const std::string& why);
  bool check_info_proof(std::span<const std::byte> message);
  static void half_open(base::Timer& timer);

  Session& session_;
  const size_t endpoint_;
  base::Reactor& home_;
  base::Logger log_;
  StateMachine<ServerPathState> state_;
  const uint64_t number_;
  const std::string peer_text_;
  const std::string peer_address_;
  const wire::ConnReq asked_;
  const wire::Uuid uuid_;
  const uint16_t cid_num_;
  const bool invalidates_;
  bool proven_;
  const std::shared_ptr<TurnShare[]> unproven_shares_;  // by worker; null: nothing is to be proved
  bool refused_ = false;                                // told so, and about to go
  std::optional<ServerHandshake> handshake_;            // if there is something to prove
  std::optional<wire::InfoReq> info_;                   // as it came, if so

  const std::shared_ptr<vhca::Pd> pd_;  // nobody else's: its keys reach this session only
  LentTable lent_;
  bool has_lent_ = false;  // all that the session used when the path was made; then catch_up()
  std::unique_ptr<vhca::Mr> chunks_mr_;
  ChunkGuard guard_;
  std::unique_ptr<Landing> landing_;  // with a guard
  std::vector<std::byte> told_;       // the info answer
  std::unique_ptr<vhca::Mr> told_mr_;
  std::optional<wire::ChunkRegion> answers_;
  std::vector<std::unique_ptr<Queue>> queues_;  // by cid; null until it is accepted
  bool info_came_ = false;
  bool client_due_ = true;  // half_open_timer_ runs
  size_t accepted_ = 0;
  size_t opens_due_ = 0;
  bool on_worker_ = false;  // memory is being registered
  size_t quiet_due_ = 0;

  base::Timer half_open_timer_;
  base::Signal changed_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
  base::Task<void> lent_task_;
  base::Task<void> bring_up_task_;  // last: goes first
};

}  // namespace braid::trs::server
