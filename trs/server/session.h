// Session: one incarnation of a client's session at the server: from its first path until the last
// one is lost.
//
// It owns the chunks, what is known of each chunk's newest request, and the user's view; paths own
// connections and keys. A client that comes back after all paths were lost gets a new Session,
// which stays closed until every older one of the same client is gone: so nothing that was
// abandoned can land after what is newer.
//
//   begins with a path -> open (user told) -> close() or last path lost -> quiet -> ended
//
// Threads: the home reactor, except the section "for queues": what it says of the session does not
// change once that is open, what it says of a chunk is for the thread that owns the chunk.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/lazy_array.h"
#include "base/reactor.h"
#include "trs/imm.h"
#include "trs/server.h"
#include "trs/server/kept_answers.h"
#include "trs/server/lent.h"
#include "trs/server/path.h"
#include "trs/server/request.h"
#include "trs/server/slice.h"
#include "trs/server/worker.h"

namespace braid::trs::server {

class ServerImpl;

/// Of a ConnectRequest's peer_text(): who shares it comes from the same place. Of IPv6 the network,
/// 64 bits: the others a host chooses for itself.
std::string address_of(const std::string& peer_text);

class Session final : public ServerSession {
 public:
  Session(ServerImpl& server, const wire::ConnReq& request, std::string peer_text, bool proof_due);
  ~Session();

  // --- ServerSession
  const std::string& name() const override { return name_; }
  std::string peer_text() const override { return peer_text_; }
  /// Its address_of().
  const std::string& peer_address() const { return peer_address_; }
  std::string client() const override;
  bool braid_peer() const override { return braid_peer_; }
  uint32_t queue_depth() const override;
  uint32_t max_io_bytes() const override;
  size_t paths() const override;
  std::vector<std::string> path_peers() const override;
  std::vector<ChunkGuard> path_guards() const override;
  std::vector<std::vector<ServedStatistics>> path_statistics() const override;
  bool takes_answer_words() const override { return has(wire::kFeatureAnswerSlots); }
  bool takes_notices() const override { return has(wire::kFeatureNotices); }
  void raise_notice() override;
  void clear_notice() override { notice_raised_ = false; }
  std::string key_name() const override { return key_ ? key_->name() : std::string(); }
  base::Task<base::Status> use_memory(const vhca::Mr& memory) override;
  bool uses_memory(const vhca::Mr& memory) const override;
  bool end(const std::string& why) override;

  /// Its client has proved a key, or need not. Before that nobody finds it.
  bool proven() const { return proven_; }
  const KeyPtr& key() const { return key_; }
  void set_proven(KeyPtr key);
  /// A path whose client has proved to have the session's key counts from now on; it is the newest.
  void adopt(Path& path);

  const wire::Uuid& paths_uuid() const { return paths_uuid_; }
  uint16_t cid_num() const { return cid_num_; }
  /// What is known for a connect request.
  KnownSession known(const wire::ConnReq& request) const;
  bool opened() const { return state_ == State::kOpen; }
  /// Of an ended one: what a client may still copy into. Gone once nobody does.
  const std::vector<std::weak_ptr<base::Segment>>& left_behind() const { return left_behind_; }
  /// Of an ended one: what its client may ask for when it comes back. Empty if it has none, or has
  /// broken the protocol.
  KeptSession kept_answers() const;
  Path& add_path(size_t endpoint, std::unique_ptr<vhca::Pd> pd, const wire::ConnReq& request,
                 std::string peer_text);
  /// The newest path of this name that is live, or null.
  Path* live_path(const wire::Uuid& uuid);
  /// Of the paths that have proved a key: that which the request joins, and whose name is put in
  /// the place of the proof; or null.
  Path* joined_path(wire::ConnReq& request);
  void add_unproven(std::vector<Path*>& all) const;
  bool live() const { return state_ == State::kBeginning || state_ == State::kOpen; }
  /// Starts the end of all paths; once. When it is over: ServerImpl::session_ended.
  void close(const std::string& why);
  /// Of all paths, those that end and those that are promised included; unproven ones have a bound
  /// of their own.
  size_t connections() const;
  /// The same of the paths that come from there (half_open.cc).
  size_t connections_from(const std::string& address) const;
  /// It has been open, or waits for its own former life: it counts among the server's sessions.
  bool settled() const;
  /// Its client has not done yet what opens it.
  bool half_open() const { return proven_ && live() && !settled(); }
  /// Ends a half-open one, since others need its place.
  void evict();
  bool evicted() const { return evicted_; }
  /// What keeps a session from ending that is being closed.
  std::string holdup() const;
  /// No answer comes from this memory any more.
  void end_use(uint32_t slot, const base::Error& why);
  void grant(LentUse& use);

  // --- for paths
  /// With the first path's info request: chunks are made, the user is told.
  base::Status begin(const wire::ParsedInfoReq& info);
  /// Whether connections of a path's former life are not drained yet.
  bool has_older(const Path& path) const;
  /// `asker` is told when nothing is left of this life of a path, nor of older ones.
  void fence(const wire::FenceMsg& asked, Path& asker);
  void path_connected(Path& path);
  /// Its client has broken the protocol by a path.
  void breach(const std::string& detail);
  void path_lost(bool was_connected, const std::string& why);
  void path_ended(Path& path);
  void slice_quiet();
  const std::shared_ptr<base::Segment>& chunks() const { return chunks_; }
  const LentUses& lent() const { return lent_; }
  LentShare& lent_share(size_t endpoint);
  /// The same for all paths. Without the promise that each chunk keeps to one connection, one
  /// thread must have them all.
  Worker& worker_of(uint16_t cid);

  // --- for queues
  ServerImpl& server() { return server_; }
  bool has(uint32_t feature) const { return (features_ & feature) != 0; }
  bool lends() const { return lends_; }
  /// Its client's. Changes while connection 0 is the only one: when the client has proved its key.
  std::shared_ptr<TurnShare> turn_share(const Worker& worker) {
    return {turn_shares_, &turn_shares_[worker.index()]};
  }
  Slice& slice(uint16_t cid) { return *slices_[cid]; }
  bool is_admin(uint32_t chunk) const { return chunk < admin_permits_; }
  bool sequenced() const { return has(wire::kFeatureSequenced); }
  uint32_t epoch() const { return epoch_; }
  /// A request that was counted in `epoch` for a chunk whose newest is of `newest`: of a later
  /// incarnation, this one or one whose requests never came, which all count from 1.
  bool counts_anew(uint32_t epoch, uint32_t newest) const {
    return epoch != newest && epoch - newest <= epoch_ - newest;
  }
  const ImmCodec& codec() const { return codec_; }
  /// Also while it ends.
  bool has_requests() const { return requests_.has_value(); }
  /// By the thread that owns the chunk: made when its first request comes.
  Request& request_of(uint32_t index) {
    if (!requests_->has(index)) [[unlikely]]
      return make_request(index);
    return (*requests_)[index];
  }
  /// Null: none has come for this chunk.
  Request* made_request(uint32_t index) {
    return requests_->has(index) ? &(*requests_)[index] : nullptr;
  }
  /// Where the data of a request is kept; with a guard no key reaches it.
  std::span<std::byte> chunk(uint32_t index);
  /// What paths are to have: kWindows only if the client can; a path whose device cannot copies.
  ChunkGuard guard() const;
  /// The connection on which chunk `index` may be used, or nothing if several may.
  std::optional<uint16_t> owner_of(uint32_t index) const;
  template <typename Function>
  void post_home(Function function) {
    home_.post([alive = std::weak_ptr<char>(alive_), run = std::move(function)]() mutable {
      if (!alive.expired()) run();
    });
  }

 private:
  enum class State : uint8_t { kBeginning, kOpen, kClosing, kEnded };
  struct PendingFence {
    wire::Uuid path;
    uint16_t recon_cnt = 0;  // its life
    wire::Uuid asker;
    uint16_t asker_recon_cnt = 0;
  };
  base::Status make_chunks();
  Request& make_request(uint32_t index);
  void take_over(const KeptSession& former);
  void answer_fences();
  void send_notice();
  void end_if_quiet();
  static void undrained(base::Timer& timer);

  ServerImpl& server_;
  base::Reactor& home_;
  State state_ = State::kBeginning;
  std::string name_;
  const std::string peer_text_;
  const std::string peer_address_ = address_of(peer_text_);
  const wire::Uuid paths_uuid_;
  const uint16_t cid_num_;
  const bool braid_peer_;
  const uint32_t features_;     // shared with the client
  const bool lends_;            // permits between its I/O connections
  const size_t spread_;         // connection cid > 0 is served by reactor spread + cid
  uint32_t epoch_;              // random, or what follows a former one; fixed when it is open
  uint32_t first_epoch_;        // of those that follow each other
  uint32_t former_epoch_ = 0;   // which this one follows; 0: none
  bool told_ = false;           // the client may have heard of this epoch
  uint32_t admin_permits_ = 1;  // on connection 0
  uint16_t recon_cnt_;          // of the newest path
  bool proven_;
  KeyPtr key_;  // null: none was asked for
  const ImmCodec codec_;

  std::shared_ptr<base::Segment> chunks_;
  LentUses lent_;
  std::vector<std::unique_ptr<LentShare>> lent_shares_;  // of devices by which it had paths
  std::optional<base::SparseArray<Request>> requests_;   // by chunk index
  std::unique_ptr<std::byte[]> headers_;                 // of these; in use as far as they are
  std::shared_ptr<TurnShare[]> turn_shares_;             // by worker
  std::vector<std::unique_ptr<Slice>> slices_;           // by cid; one if the client pins nothing
  std::vector<std::unique_ptr<Path>> paths_;             // those that end included
  // One per pair of paths that are there: what is asked of others is answered at once, and who has
  // gone waits no more.
  std::vector<PendingFence> fences_;
  bool user_knows_ = false;
  bool evicted_ = false;
  bool breached_ = false;
  bool notice_raised_ = false;   // and sent by a path that still stands
  size_t quiet_due_ = 0;         // slices
  base::Timer undrained_timer_;  // while closing
  std::vector<std::weak_ptr<base::Segment>> left_behind_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace braid::trs::server
