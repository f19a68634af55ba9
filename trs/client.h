// The client side of TRS: a session to one server, its permits, and requests.
//
// A session is one path in this version; a path has connection 0 (service: handshake, heartbeats,
// admin requests) and one I/O connection per client reactor. Each reactor has a ClientQueue:
// permits, submission and completions stay on its thread.
//
// Life of a request: the user fills a ClientRequest, gets a Permit, submits; the queue gathers user
// header and data into one RDMA WRITE_WITH_IMM (docs/trs-wire.md); the server's answer is one
// WRITE_WITH_IMM back; `done` runs once, on the same reactor. When the path fails, requests in
// flight are kept, fenced from the old connections, and sent again on the next ones, after the
// session's user had its turn (SessionUser::reconnected), in their order of submission. They fail
// only when the session is closed, or after `give_up_after_ns` without a path; from then on until
// the path is back and the user has its turn, new ones fail too.
#pragma once

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
#include "vhca/device.h"

namespace braid::trs {

class ClientSession;
class ClientQueue;

enum class Direction : uint8_t { kRead, kWrite };

/// Registered local memory of one request.
struct DataBuffer {
  const vhca::Mr* mr = nullptr;
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
  /// SessionUser::reconnected. At most 1024 bytes.
  std::span<const std::byte> user_header;
  DataBuffer data;  // at most the session's max_io_bytes; length 0 is allowed for writes
  Permit permit;    // taken over by submit, given back before `done` runs
  /// kOk, what the server's user answered (errc_from_errno), kTimedOut (gave up), kCanceled
  /// (session closed).
  void (*done)(ClientRequest& request, base::Errc status) = nullptr;
  void* context = nullptr;
  /// In `done`: the status is the server's own word, whatever it is; else it never came so far.
  bool answered() const { return outcome == base::Errc::kOk; }
  base::Errc outcome = base::Errc::kOk;  // private to the queue: why it was not answered
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

/// Somebody who waits for a permit; called in turn, so that all users of a session get their share.
struct PermitWaiter : base::ListNode {
  void (*permit_free)(PermitWaiter& waiter) = nullptr;
  void* context = nullptr;
};

/// What the session tells its user, on the session's home reactor.
class SessionUser {
 public:
  virtual ~SessionUser() = default;
  /// The path is up again, perhaps to a restarted server that knows nothing of us. Admin requests
  /// work; I/O stays held until the task is done. An error puts the path down again (it is
  /// retried). Should the path be lost meanwhile, or the session closed, admin requests fail and
  /// the task must end soon.
  virtual base::Task<base::Status> reconnected() = 0;
  /// The task of reconnected() ended well and the path still stood: requests flow from here on.
  virtual void restored() {}
  /// The path is lost: that over which requests flowed, or one on which reconnected() was begun and
  /// restored() was not reached. Each such call is followed by one requests_returned(), and then by
  /// reconnected() when there is a path again, or by nothing if the session is closed.
  virtual void disconnected(const base::Error& why) = 0;
  /// What was on the wire of the lost path is held now: cancel() reaches it. May be long after
  /// disconnected(): a server that was stopped in the middle of a copy still has our memory.
  virtual void requests_returned() {}
  /// There has been no path for give_up_after_ns: what is held ends with kTimedOut, and so does
  /// what is submitted until the next reconnected() begins. Called again if that one fails.
  virtual void gave_up(const base::Error& why) { (void)why; }
};

enum class SessionState : uint8_t { kConnecting, kConnected, kReconnecting, kClosed };
std::string_view to_string(SessionState state);

struct HeartbeatOptions {
  uint64_t interval_ns = 150 * base::kMillisecond;
  /// A silent peer is cut off after interval * (missed_max + 1) at most, and one that is not
  /// scheduled for less than interval * (missed_max - 1) is not.
  unsigned missed_max = 5;
};

struct ReconnectOptions {
  uint64_t delay_min_ns =
      100 * base::kMillisecond;  // doubles up to the maximum, plus up to 25 % jitter
  uint64_t delay_max_ns = 5 * base::kSecond;
  uint64_t give_up_after_ns = base::kNever;  // without a path: requests fail with kTimedOut
  uint64_t attempt_timeout_ns =
      5 * base::kSecond;  // one attempt, all connections and the info exchange
};

struct ClientOptions {
  std::string session_name;  // shown at the server; at most 254 bytes
  vhca::Address server;
  std::vector<base::Reactor*>
      reactors;  // I/O connection 1 + i belongs to reactors[i]; [0] is the home reactor
  HeartbeatOptions heartbeat;
  ReconnectOptions reconnect;
  uint64_t admin_timeout_ns = 5 * base::kSecond;  // for one admin request; kNever: no limit
};

/// What the server granted.
struct SessionLimits {
  uint32_t queue_depth = 0;    // permits of the whole session
  uint32_t admin_permits = 0;  // of them; the rest is for I/O
  uint32_t max_io_bytes = 0;
  bool braid_peer = false;  // the server showed Braid's magic in its conn_rsp
  uint32_t features = 0;    // feature bits shared with the peer
};

struct ClientStatistics {
  uint64_t reads = 0, read_bytes = 0, writes = 0, write_bytes = 0;
  uint64_t in_flight = 0, resent = 0, held = 0;
  uint64_t reconnects = 0, reconnects_failed = 0;
  uint64_t messages_sent = 0, messages_received = 0;  // on this queue's connections
  uint64_t permits = 0, permits_free = 0;             // of this queue
};

/// One reactor's part of a session. Everything on that reactor's thread.
class ClientQueue {
 public:
  virtual ~ClientQueue() = default;
  /// A free permit, or an empty one.
  virtual Permit acquire() = 0;
  /// Called (once) when a permit may be free. Waiters are served round robin.
  virtual void wait_for_permit(PermitWaiter& waiter) = 0;
  /// Takes the request. Never fails here: while the path is down it is held. `done` never runs
  /// inside, unless the session is closed.
  virtual void submit(ClientRequest& request) = 0;
  /// Gives up a request that is held. True: it ends soon, with kCanceled. False: it is on the wire
  /// and ends by its answer, or is held again once the path is lost.
  virtual bool cancel(ClientRequest& request) = 0;
  virtual ClientStatistics statistics() const = 0;

 private:
  friend class Permit;
  virtual void give_back(uint32_t index) = 0;
};

class ClientSession {
 public:
  virtual ~ClientSession() = default;  // close() first, unless the host is dead
  /// Connects and does the info exchange; on the home reactor. Retries nothing: the first failure
  /// is told in clear words. With reactors on several threads the task must not be destroyed before
  /// it ends; nor must that of close().
  static base::Task<base::Result<std::unique_ptr<ClientSession>>> open(vhca::Device& device,
                                                                       vhca::Pd& pd,
                                                                       ClientOptions options,
                                                                       SessionUser& user);
  /// Fails what is in flight with kCanceled, tells the server, releases all. When it returns no
  /// buffer is in use. Permits that were acquired must be given back before the object is
  /// destroyed.
  virtual base::Task<void> close() = 0;

  /// Gives up the present path, if any, as if it had failed: what is in flight is taken from the
  /// server, held, and sent again on the next path unless it is cancelled. Home reactor.
  virtual void drop_path(std::string_view why) = 0;

  virtual SessionState state() const = 0;
  virtual const SessionLimits& limits() const = 0;
  virtual ClientQueue& queue(size_t reactor_index) = 0;
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
