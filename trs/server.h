// The server side of TRS: listens, accepts sessions, hands each request to its user, sends the
// answers.
//
// The user gets data in the chunk the client wrote it to (no copy) and answers from the chunk, or
// for a read from any registered memory (no copy either). Connection r of every session is served
// by reactor r mod R, cid 0 by the home reactor. A client that reconnects is admitted only after
// every request of its former path has ended at the user and the former QPs are fenced: an
// abandoned write can never land after a newer one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "trs/client.h"
#include "vhca/device.h"

namespace braid::trs {

class ServerSession;

/// A request at the server, from ServerUser::request until answer(). Lives in the session's
/// preallocated table.
class ServerRequest {
 public:
  Direction direction = Direction::kRead;
  std::span<const std::byte> user_header;  // a private copy: the client cannot change it any more
  std::span<std::byte>
      data;  // in the chunk. Write: what came. Read: where the answer goes, of the asked length
  ServerSession* session = nullptr;
  base::Reactor* reactor = nullptr;  // where it came and must be answered
  void* context = nullptr;           // the user's
  /// By which it came and its answer goes. No other connection of the server has this number, nor
  /// had it before. Answers of one connection reach the client in the order of their answer().
  uint64_t connection = 0;
  /// The client has seen the answer to the former request of this object, which is its chunk's.
  /// Never told of a peer without numbers, which may send a request twice.
  bool follows = false;
  /// Set before answer(), of a request without data that may be done twice: the answer is right
  /// behind those that went before it by `connection`. If another has to bring it, as the path is
  /// lost, the request comes to the user again instead.
  bool repeats = false;
  /// Words of the client's upper layer; only between Braid peers.
  std::array<uint64_t, 2> words{};
  bool has_words = false;
  /// The same in the other direction: set them before answer(). A peer that takes no answer slots
  /// (ServerSession::takes_answer_words) does not get them.
  std::array<uint64_t, 2> answer_words{};
  bool has_answer_words = false;
  /// Ends the request: `status` goes to the client as errno. A successful read sends all of `data`,
  /// or of `source` if given (of ServerSession::use_memory; same length). The object may be reused
  /// at once.
  virtual void answer(base::Errc status, const DataBuffer* source = nullptr) = 0;

 protected:
  ~ServerRequest() = default;
};

/// How a path keeps its client from a chunk between the arrival of a request and its answer
/// (docs/chunk-keys.md).
enum class ChunkGuard : uint8_t {
  kNone,     // the key of all chunks is valid for as long as the path is
  kWindows,  // the chunk's key is taken away: a memory window, invalidated
  kCopy,     // what came is copied into memory that no key reaches, by the user or for it
};
/// "open", "windows", "copy".
std::string_view to_string(ChunkGuard guard);

/// The answers that a connection of a path has given since this life of the path began. One that is
/// asked for again by another path counts there as well.
struct ServedStatistics {
  uint64_t reads = 0, read_bytes = 0, writes = 0, write_bytes = 0;  // with success
  uint64_t errors = 0;                                              // with a refusal
  uint64_t copied_bytes = 0;  // of writes, by a chunk guard; what came and was not answered, too
};

/// One client session, as the user sees it.
class ServerSession {
 public:
  virtual const std::string& name() const = 0;  // as the client says: not an identity
  virtual std::string peer_text() const = 0;
  /// Whose it is, for who shares something out among clients: sessions whose clients have proved
  /// the same key, or come from the same address, are one client's.
  virtual std::string client() const = 0;
  virtual bool braid_peer() const = 0;
  virtual uint32_t queue_depth() const = 0;
  virtual uint32_t max_io_bytes() const = 0;
  virtual size_t paths() const = 0;                         // that are up or coming up
  virtual std::vector<std::string> path_peers() const = 0;  // from where these come
  virtual std::vector<ChunkGuard> path_guards() const = 0;  // of the same paths, in their order
  /// Of the same paths, in their order, by connection number; 0 carries no I/O.
  virtual std::vector<std::vector<ServedStatistics>> path_statistics() const = 0;
  virtual bool takes_answer_words() const = 0;
  virtual bool takes_notices() const = 0;
  /// The client's user is to hear that there is something to ask for (SessionUser::notice): once
  /// for each time that it is raised after it was cleared. While it is raised it survives the loss
  /// of each path but the last. Nothing happens with a client that takes none. Home reactor.
  virtual void raise_notice() = 0;
  /// The client has asked, and is told all.
  virtual void clear_notice() = 0;
  virtual std::string key_name() const = 0;  // which the client has proved to have; empty: none
  /// From here on reads of this session may be answered from `memory`, which is of this server's
  /// register_memory(): each of its paths has it registered, those that come later before they
  /// carry anything. For as long as the session lives, and the memory is lent. On worker threads;
  /// who gives up the task may ask again, and finds it where it is. kNoMemory: a device has no more
  /// registrations for it (they are for chunks, too: lent memory has half of them). kCanceled: it
  /// was taken back. Within session_opened() it is there before the first request. Home reactor;
  /// the session has to stay while it is awaited, as it does while a request of it is at the user.
  virtual base::Task<base::Status> use_memory(const vhca::Mr& memory) = 0;
  /// Whether that has been said of `memory`.
  virtual bool uses_memory(const vhca::Mr& memory) const = 0;
  /// Ends all its paths. What is at the user ends there first, and is answered to nobody; then
  /// ServerUser::session_closed(), never inside. The client is free to come back. False: it is
  /// ending already. Home reactor.
  virtual bool end(const std::string& why) = 0;
  void* context = nullptr;  // the user's

 protected:
  ~ServerSession() = default;
};

class ServerUser {
 public:
  virtual ~ServerUser() = default;
  /// Home reactor. The session's first path is up / its last one has ended and no request is left.
  virtual void session_opened(ServerSession& session) = 0;
  virtual void session_closed(ServerSession& session) = 0;
  /// On the request's reactor. Must lead to exactly one answer(), now or later, also if the client
  /// is gone by then.
  virtual void request(ServerRequest& request) = 0;
  /// Whether the user takes the data of the write with this header just once, by moving it to where
  /// no client reaches, and never looks at it where it lies. A guard that copies leaves its own
  /// copy out then: until the data is moved, what the client writes there is what it has sent. On
  /// the request's reactor, right before request(); the header may still turn out to be wrong.
  virtual bool moves_data(const ServerSession& session, const base::Reactor& reactor,
                          std::span<const std::byte> user_header) {
    (void)session, (void)reactor, (void)user_header;
    return false;
  }
};

/// A device by which clients come, and where it listens.
struct ServerEndpoint {
  vhca::Device* device = nullptr;
  vhca::Address listen;
};

struct ServerOptions {
  vhca::Address listen;                   // of the device that the server is made with
  std::vector<ServerEndpoint> endpoints;  // further ones
  std::vector<base::Reactor*> reactors;   // [0] is the home reactor
  uint32_t queue_depth = 128;             // chunks per session
  uint32_t max_io_bytes =
      1 << 20;  // payload per request; chunk = this + 4 KiB for headers, rounded to a power of two
  /// One address may have three quarters of them. Half-open ones have a bound of their own: with
  /// more than 64, or with more than half of the connections, the oldest goes.
  unsigned sessions_max = 64;
  /// Of all sessions together; one client may have half of them, all its paths and lives counted,
  /// and one address three quarters.
  unsigned connections_max = 1024;
  HeartbeatOptions heartbeat;
  /// Towards clients that are not Braid: as far apart as Linux's own, who cannot hold their I/O
  /// until there is a path again.
  HeartbeatOptions patient_heartbeat = {.interval_ns = 5 * base::kSecond, .missed_max = 5};
  /// kWindows: where device and client can, else kCopy. Each path has chunks of its own then.
  ChunkGuard guard = ChunkGuard::kNone;
  /// What is offered to Braid clients (wire.h); less than all to be as an older version is.
  uint32_t features = kAllFeatures;
  /// Who does not prove one of these is not let in (docs/authentication.md). Null: everybody is.
  std::shared_ptr<const KeyRing> keys;
};

/// Since the server was made, but for `sessions`.
struct ServerStatistics {
  uint64_t sessions = 0;  // at present, those that begin or end included
  uint64_t sessions_opened = 0;
  uint64_t half_open_evicted = 0;  // sessions that ended half open to make room for others
  uint64_t unproven = 0;  // at present: paths whose client has not proved its key, or was refused
  uint64_t connects_refused = 0;
  uint64_t polls = 0;         // of connections, whether there was anything or not
  uint64_t turn_clients = 0;  // at present: reactors count those that have connections there
  /// Of clients that have not proved a key, by the reason: the words are fixed.
  std::map<std::string, uint64_t> keys_refused;
  /// Sessions ended because their client broke the protocol, by what it did: the words are fixed.
  std::map<std::string, uint64_t> breaches;
};

class Server {
 public:
  virtual ~Server() = default;  // stop() first, unless the host is dead
  static base::Result<std::unique_ptr<Server>> create(vhca::Device& device, ServerOptions options,
                                                      ServerUser& user);
  virtual vhca::Address address() const = 0;  // of the first endpoint, with the chosen port
  virtual std::vector<vhca::Address> addresses() const = 0;  // of all endpoints
  /// Memory outside the chunks from which reads may be answered, those of this server only; at most
  /// 4096 stretches. Home reactor. Nothing is registered now: ServerSession::use_memory() does it,
  /// for that session and on worker threads. So the memory itself stays until stop() is over,
  /// however soon the object goes.
  virtual base::Result<std::unique_ptr<vhca::Mr>> register_memory(std::byte* address,
                                                                  uint64_t length_bytes) = 0;
  /// Closes all sessions and waits for their requests, for as long as those take.
  virtual base::Task<void> stop() = 0;
  /// The same for at most so long. kTimedOut names what it still waits for, and the server has to
  /// stay, since its memory is in use: stop again, or let the process end.
  virtual base::Task<base::Status> stop_within(uint64_t limit_ns) = 0;
  // --- home reactor
  /// From now on these. Sessions whose key is not among them, or has another secret there, are
  /// ended. kInvalid: null, for a server that has asked for keys never stops to; or a server made
  /// without keys, whose sessions have proved nothing. How many sessions were ended.
  virtual base::Result<size_t> set_keys(std::shared_ptr<const KeyRing> keys) = 0;
  virtual std::vector<ServerSession*> sessions() = 0;
  virtual ServerStatistics statistics() const = 0;
};

}  // namespace braid::trs
