// The client side of TRS: a session to one server, its permits, and requests.
//
// A session has one path or several; a path has connection 0 (service: handshake, heartbeats, admin
// requests) and one I/O connection per client reactor. Each reactor has a ClientQueue: permits,
// submission and completions stay on its thread; each request goes by a path that the session's
// policy chooses.
//
// Life of a request: the user fills a ClientRequest, gets a Permit, submits; the queue gathers user
// header and data into one RDMA WRITE_WITH_IMM (docs/trs-wire.md); the server's answer is one
// WRITE_WITH_IMM back; `done` runs once, on the same reactor. When a path fails and another is up,
// what was in flight on it goes by the other, and a Braid server applies nothing twice
// (docs/trs-multipath.md). When the last path fails, requests in flight are kept, fenced from the
// old connections, and sent again on the next ones, after the session's user had its turn
// (SessionUser::reconnected), in their order of submission. They fail only when the session is
// closed, or after `give_up_after_ns` without a path; from then on until a path is back and the
// user has its turn, new ones fail too. After `lost_after_ns` no path is tried any more.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/intrusive_list.h"
#include "base/reactor.h"
#include "trs/keys.h"
#include "vhca/device.h"

namespace braid::trs {

class ClientSession;
class ClientQueue;

enum class Direction : uint8_t { kRead, kWrite };

/// All that this version can do between Braid peers (docs/trs-wire.md).
inline constexpr uint32_t kAllFeatures = 0x3ef;

/// The devices by which sessions go, and memory that is registered with all of them. Sessions to
/// several servers may share one, and so a buffer. It outlives them. Threads: add_device() the home
/// reactor's of its sessions; the rest any.
class Domain {
 public:
  virtual ~Domain() = default;
  static constexpr size_t kDevicesMax = 8;
  static base::Result<std::unique_ptr<Domain>> create(std::span<vhca::Device* const> devices);
  static base::Result<std::unique_ptr<Domain>> create(vhca::Device& device);
  /// One more; all memory is registered with it. Its index, which PathOptions name.
  virtual base::Result<size_t> add_device(vhca::Device& device) = 0;
  virtual size_t devices() const = 0;
  virtual vhca::Device& device(size_t index) = 0;
  virtual vhca::Pd& pd(size_t index) = 0;
  /// For requests of all sessions of the domain. The result's keys are those of device 0.
  virtual base::Result<std::unique_ptr<vhca::Mr>> register_memory(std::byte* address,
                                                                  uint64_t length_bytes,
                                                                  int access) = 0;
  /// Deregisters and never waits, as Pd::dereg_mr(), of which it keeps the rules for `memory`.
  virtual void release(std::unique_ptr<vhca::Mr> registered, std::shared_ptr<void> memory) = 0;
};

/// Registered local memory of one request.
struct DataBuffer {
  const vhca::Mr* mr = nullptr;  // of the session's Domain; with one device any of its PD
  std::byte* address = nullptr;
  uint32_t length_bytes = 0;
};

/// The right to one chunk of the server. Move-only; gives itself back. Belongs to the reactor that
/// acquired it.
class Permit {
 public:
  Permit() = default;
  Permit(ClientQueue& queue, uint32_t index) : queue_(&queue), index_(index) {}
  Permit(Permit&& other) noexcept
      : queue_(std::exchange(other.queue_, nullptr)), index_(other.index_) {}
  Permit& operator=(Permit&& other) noexcept;
  ~Permit() { release(); }
  explicit operator bool() const { return queue_ != nullptr; }
  uint32_t index() const { return index_; }
  void release();

 private:
  ClientQueue* queue_ = nullptr;
  uint32_t index_ = 0;
};

/// One request. The caller owns it, its header and its data buffer until `done` runs, exactly once.
struct ClientRequest : base::ListNode {
  Direction direction = Direction::kRead;
  /// Read each time the request is put on a wire, so it may be rewritten in
  /// SessionUser::reconnected. At most ClientOptions::user_header_bytes_max bytes, also then.
  std::span<const std::byte> user_header;
  DataBuffer data;  // at most the session's max_io_bytes; length 0 is allowed for writes
  Permit permit;    // taken over by submit, given back before `done` runs
  /// kOk, what the server's user answered (errc_from_errno), kTimedOut (gave up), kDisconnected
  /// (session lost), kCanceled (session closed).
  void (*done)(ClientRequest& request, base::Errc status) = nullptr;
  void* context = nullptr;
  /// In `done`: the status is the server's own word, whatever it is; else it never came so far.
  bool answered() const { return outcome == base::Errc::kOk; }
  /// Words for the server's upper layer; only to Braid servers (SessionLimits::features).
  std::array<uint64_t, 2> words{};
  bool has_words = false;
  /// In `done`: words of the server's upper layer, if it had any.
  std::array<uint64_t, 2> answer_words{};
  bool has_answer_words = false;
  // --- private to the queue
  base::Errc outcome = base::Errc::kOk;  // why it was not answered
  uint32_t epoch = 0, sequence = 0;      // of its chunk; sequence 0: it has no number
  uint32_t sent_in = 0;                  // the epoch of the incarnation in which it was sent last
  uint64_t sent_at_ns = 0;
  uint32_t sent_from = 0;  // the processor
};

/// Called on the home reactor when the server answers an admin request that has timed out.
using LateAnswer = std::function<void(base::Errc status, std::span<const std::byte> data)>;
inline constexpr size_t kAdminBytesMax = 4096;

/// One admin request. It, header and data are the caller's until the task of admin() has ended.
struct AdminRequest {
  std::string what;  // names it in errors: "open disk.img"
  Direction direction = Direction::kRead;
  std::span<const std::byte> user_header;  // at most 1024 bytes
  std::span<std::byte> data;  // need not be registered; at most kAdminBytesMax. A read fills it.
  LateAnswer late_answer;  // to undo what the server did when nobody waited any more; may be empty
};

/// Somebody who waits for a permit; called in turn, so that all users of a reactor get their share.
/// Reactors lend each other permits by how many wait (docs/lent-permits.md).
struct PermitWaiter : base::ListNode {
  void (*permit_free)(PermitWaiter& waiter) = nullptr;
  void* context = nullptr;
  uint32_t users = 1;   // for whom it waits
  uint32_t leaves = 0;  // it is not called before more permits are free than so many
};

/// What the session tells its user, on the session's home reactor.
class SessionUser {
 public:
  virtual ~SessionUser() = default;
  /// A first path is up again, perhaps to a restarted server that knows nothing of us. Admin
  /// requests work; I/O stays held until the task is done. An error puts the path down again (it is
  /// retried). Should the path be lost meanwhile, or the session closed, admin requests fail and
  /// the task must end soon.
  virtual base::Task<base::Status> reconnected() = 0;
  /// The task of reconnected() ended well and the path still stood: requests flow from here on.
  virtual void restored() {}
  /// The last path is lost by which requests flowed, or one on which reconnected() was begun and
  /// restored() was not reached. Each such call is followed by one requests_returned(), and then by
  /// reconnected() when there is a path again, or by nothing if the session is closed.
  virtual void disconnected(const base::Error& why) = 0;
  /// What was on the wire of the lost path is held now: cancel() reaches it. May be long after
  /// disconnected(): a server that was stopped in the middle of a copy still has our memory.
  virtual void requests_returned() {}
  /// There has been no path for give_up_after_ns: what is held ends with kTimedOut, and so does
  /// what is submitted until the next reconnected() begins. Called again if that one fails.
  virtual void gave_up(const base::Error& why) { (void)why; }
  /// There has been no path for lost_after_ns: no further one is tried, and all requests end with
  /// kDisconnected. Nothing comes after it; what is left is close().
  virtual void lost(const base::Error& why) { (void)why; }
  /// The server has something to be asked for (ServerSession::raise_notice). Comes at any time,
  /// also before open() or reconnected() has ended, more often than there is cause, and at most
  /// once in a turn of the reactor.
  virtual void notice() {}
};

enum class SessionState : uint8_t { kConnecting, kConnected, kReconnecting, kLost, kClosed };
std::string_view to_string(SessionState state);

struct HeartbeatOptions {
  uint64_t interval_ns = 150 * base::kMillisecond;
  /// A silent peer is cut off after interval * (missed_max + 1) at most (in shared memory, where
  /// nothing goes, after HeartbeatDriver::kSeldom intervals more), and one that is not
  /// scheduled for less than interval * (missed_max - 1) is not.
  unsigned missed_max = 5;
};

struct ReconnectOptions {
  uint64_t delay_min_ns =
      100 * base::kMillisecond;  // doubles up to the maximum, plus up to 25 % jitter
  uint64_t delay_max_ns = 5 * base::kSecond;
  uint64_t give_up_after_ns = base::kNever;  // without a path: requests fail with kTimedOut
  uint64_t lost_after_ns = base::kNever;     // without a path: the session is lost, for good
  uint64_t attempt_timeout_ns =
      5 * base::kSecond;  // one attempt, all connections and the info exchange
  /// Of a Braid server the info answer is waited for longer, while something acknowledges below its
  /// program: it may register much memory before.
  uint64_t bring_up_timeout_ns = 120 * base::kSecond;
};

/// How a request's path is chosen among those that are up and have room.
enum class PathPolicy : uint8_t {
  kRoundRobin,   // in turn
  kMinInflight,  // that with the fewest requests in flight
  kMinLatency,   // that whose last answers came fastest; now and then another, to know better
};
std::string_view to_string(PathPolicy policy);

/// One path of a session.
struct PathOptions {
  vhca::Address server;
  size_t device = 0;  // of the Domain
};

struct ClientOptions {
  // Shown at the server; at most 254 bytes. A server that is not Braid gets '.' and '/' as '-'.
  std::string session_name;
  vhca::Address server;            // of path 0, which goes by device 0
  std::vector<PathOptions> paths;  // further ones
  PathPolicy policy = PathPolicy::kMinInflight;
  std::vector<base::Reactor*>
      reactors;  // I/O connection 1 + i belongs to reactors[i]; [0] is the home reactor
  HeartbeatOptions heartbeat;
  ReconnectOptions reconnect;
  uint64_t admin_timeout_ns = 5 * base::kSecond;  // for one admin request; kNever: no limit
  /// What is offered to Braid servers (wire.h); less than all to be as an older version is.
  uint32_t features = kAllFeatures;
  /// The processor on which the calling thread runs, for ConnectionStatistics::moved; asked twice
  /// for each request, on its reactor. Null: nothing counts as moved.
  unsigned (*processor)() = nullptr;
  /// Of the user headers of I/O requests in bytes, at most 1024 (wire.h): room for as many is kept
  /// for each send under way. Requests with longer ones end with kInvalid. Those of admin requests
  /// may always have 1024.
  uint32_t user_header_bytes_max = 1024;
  /// Headers and the room for answers have all their memory from the start. Without, they take it
  /// as they are used.
  bool touch_buffers = true;
  /// Each path proves that it has this, and is made only to a server that proves it too
  /// (docs/authentication.md). Null: no server that asks for a key will do.
  KeyPtr key;
};

/// What the server granted.
struct SessionLimits {
  uint32_t queue_depth = 0;    // permits of the whole session
  uint32_t admin_permits = 0;  // of them; the rest is for I/O
  uint32_t max_io_bytes = 0;
  bool braid_peer = false;  // the server showed Braid's magic in its conn_rsp
  uint32_t features = 0;    // feature bits shared with the peer
  bool notices = false;     // one of them: SessionUser::notice() is called
};

struct ClientStatistics {
  uint64_t reads = 0, read_bytes = 0, writes = 0, write_bytes = 0;
  uint64_t in_flight = 0, resent = 0, held = 0;
  uint64_t reconnects = 0, reconnects_failed = 0;
  uint64_t messages_sent = 0, messages_received = 0;  // on this queue's connections
  uint64_t permits = 0, permits_free = 0;             // of this queue, borrowed ones included
  uint64_t permits_lent = 0, permits_borrowed = 0;    // since the beginning
};

/// What one connection of a path has carried.
struct ConnectionStatistics {
  uint64_t reads = 0, read_bytes = 0, writes = 0, write_bytes = 0;  // answered with success
  uint64_t in_flight = 0;
  uint64_t messages_sent = 0, messages_received = 0;
  /// From send to answer, in the reactor's turns: bucket i counts those below 2^i microseconds and
  /// not below half of it; the last one all that took longer.
  static constexpr size_t kLatencyBuckets = 24;
  std::array<uint64_t, kLatencyBuckets> latency{};
  uint64_t latency_sum_ns = 0;  // of all that `latency` counts
  uint64_t errors = 0;          // answered with a refusal
  /// Whose answer was taken on another processor than that from which it was last sent.
  uint64_t moved = 0;
};

struct PathStatus {
  size_t id = 0;  // never used again
  vhca::Address server;
  std::string device;
  std::string state;  // "connected", "reconnecting" ..., "disconnected by its operator"
  bool connected = false;
  std::string why;  // what went wrong last; empty: nothing
  /// Who listens there did not know the session when the path was to join it: another server, or
  /// this one has just been restarted and the other paths do not know yet.
  bool unknown_there = false;
  bool disconnected_by_operator = false;  // disconnect_path(), until reconnect_path()
  uint64_t reconnects = 0, reconnects_failed = 0;
  uint64_t failed_over = 0;  // requests that were taken from it to another path
  std::vector<ConnectionStatistics> connections;  // by cid
};

/// One reactor's part of a session. Everything on that reactor's thread.
class ClientQueue {
 public:
  virtual ~ClientQueue() = default;
  /// A free permit, or an empty one. Other reactors first get what they are owed.
  virtual Permit acquire() = 0;
  /// The same for one of several users who has none: before what other reactors are owed.
  virtual Permit acquire_first() = 0;
  /// So many of the free permits stay here: for users who have none.
  virtual void set_reserve(uint32_t permits) = 0;
  /// Permits that it has now, in use or free.
  virtual uint32_t permits() const = 0;
  /// Called (once) when a permit may be free. Waiters are served round robin.
  virtual void wait_for_permit(PermitWaiter& waiter) = 0;
  /// Takes the request. Never fails here: while the path is down it is held. `done` never runs
  /// inside, unless the session is closed.
  virtual void submit(ClientRequest& request) = 0;
  /// Gives up a request that is held. True: it ends soon, with kCanceled. False: it is on the wire
  /// and ends by its answer, or is held again once the path is lost.
  virtual bool cancel(ClientRequest& request) = 0;
  /// Whether what is submitted now would go on a wire, as soon as there is a send slot.
  virtual bool has_path() const = 0;
  virtual ClientStatistics statistics() const = 0;

 private:
  friend class Permit;
  virtual void give_back(uint32_t index) = 0;
};

/// Random, and known to the server. Compared, it gives all who share sessions the same order.
using SessionId = std::array<uint8_t, 16>;

class ClientSession {
 public:
  virtual ~ClientSession() = default;  // close() first, unless the host is dead
  /// Connects and does the info exchange; on the home reactor. Retries nothing: the first failure
  /// is told in clear words. With reactors on several threads the task must not be destroyed before
  /// it ends; nor must that of close().
  static base::Task<base::Result<std::unique_ptr<ClientSession>>> open(Domain& domain,
                                                                       ClientOptions options,
                                                                       SessionUser& user);
  /// Fails what is in flight with kCanceled, tells the server, releases all. When it returns no
  /// buffer is in use. Permits that were acquired must be given back before the object is
  /// destroyed.
  virtual base::Task<void> close() = 0;

  /// Gives up the present paths, if any, as if all had failed: what is in flight is taken from the
  /// server, held, and sent again on the next path unless it is cancelled. Home reactor.
  virtual void drop_path(std::string_view why) = 0;

  /// A port of an adapter, which may be open as several devices, has lost its link
  /// (IBV_EVENT_PORT_ERR). Paths by it are given up at once if there is another one that is up:
  /// their requests go there without waiting for what the adapter or the heartbeats would find out
  /// later. Else nothing happens: the link may come back before the adapter's patience ends. How
  /// many were given up. Home reactor.
  virtual size_t link_down(std::span<const vhca::Device* const> adapter, uint8_t port) = 0;

  // --- paths, on the home reactor
  /// One more; it is connected in the background. Its id. kInvalid: no such device. kDisconnected:
  /// the session is lost.
  virtual base::Result<size_t> add_path(const PathOptions& path) = 0;
  /// For good: what is in flight on it goes by another one. kInvalid: the last one, or no such id.
  virtual base::Task<base::Status> remove_path(size_t id) = 0;
  /// Takes a path down and leaves it down / makes it anew at once. kNotFound: no such id.
  /// kDisconnected: the session is lost.
  virtual base::Status disconnect_path(size_t id) = 0;
  virtual base::Status reconnect_path(size_t id) = 0;
  virtual std::vector<PathStatus> paths() const = 0;
  virtual PathPolicy policy() const = 0;
  virtual void set_policy(PathPolicy policy) = 0;

  /// Another ReconnectOptions::lost_after_ns, also for a path that is away already. It has no
  /// effect on a session that is lost.
  virtual void set_lost_after(uint64_t lost_after_ns) = 0;
  /// The same number as before: the server has known all along what it had answered, so what is
  /// sent again is not done again. Home reactor, from SessionUser::reconnected() on.
  virtual uint64_t lineage() const = 0;
  virtual SessionState state() const = 0;
  virtual const SessionLimits& limits() const = 0;
  virtual ClientQueue& queue(size_t reactor_index) = 0;
  /// What ClientQueue::statistics() tells, for the home reactor: of a queue that works meanwhile
  /// the numbers are of no one moment.
  virtual ClientStatistics statistics(size_t reactor_index) const = 0;
  virtual size_t reactors() const = 0;  // any thread, as is id()
  virtual const SessionId& id() const = 0;
  /// An admin request on connection 0, home reactor: works during SessionUser::reconnected. The
  /// value is the server's answer, kOk or a refusal. It is never held; errors, all of which leave
  /// open whether the server did it: kDisconnected if there is no path or it is lost before the
  /// answer; kTimedOut after admin_timeout_ns, while the path stays; kCanceled if the session is
  /// closed. A request that timed out keeps its permit until the server answers; there are
  /// limits().admin_permits, and who finds none waits. The task may be destroyed at any time.
  virtual base::Task<base::Result<base::Errc>> admin(const AdminRequest& request) = 0;
  /// For `why` and `show`: one sentence, for example "reconnecting to 10.0.0.1:1234 for 3.2 s:
  /// refused (nobody listens)".
  virtual std::string explain() const = 0;
  virtual std::string peer_text() const = 0;
};

}  // namespace braid::trs
