// The client: block devices of a remote server, all of one server over one shared TRS session
// (docs/bnbd.md).
//
// While the path is down I/O is held and then sent again: a user sees a delay, no error. What can
// go wrong beyond that is told by RemoteDevice::explain():
//   - the server came back with another device under the name: the device stays down, its I/O held
//     until it is closed;
//   - the server's operator has closed the device: I/O is held until its user takes it back,
//   remap(),
//     or gives it up;
//   - another client was let in for writing while the path was down: all I/O fails with kIo until
//     the device is closed, as what it holds would land over what the other wrote;
//   - while acknowledged writes were not flushed, the server's machine restarted, or a flush failed
//     there whose answer was lost: the next flush fails with kIo, once.
// A device may be told to give up after a while; what it holds then fails with kTimedOut.
//
// Threads: everything on the session's home reactor, transport.reactors[0], but for requests: those
// may be submitted on each of transport.reactors (BlockDevice::queues(), docs/client-reactors.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bnbd/block.h"
#include "bnbd/latency.h"
#include "bnbd/wire.h"
#include "trs/client.h"

namespace braid::bnbd {

class RemoteSession;

struct RemoteDeviceOptions {
  std::string name;  // of the export
  wire::AccessMode mode = wire::AccessMode::kReadWrite;
  uint32_t queue_depth = 128;       // requests in progress on each reactor; more wait inside
  uint32_t max_io_bytes = 1 << 20;  // longer than the server takes: sent in parts
  /// Not open for so long, the device gives up: what it holds fails with kTimedOut, and so does
  /// what comes until it is open again. kNever: I/O waits for as long as it takes.
  uint64_t give_up_after_ns = base::kNever;
  /// The session's path away for so long, it is not tried any more, and the device is lost for
  /// good. Of devices that share a session the longest time counts.
  uint64_t lost_after_ns = base::kNever;
};

enum class RemoteState : uint8_t {
  kOpen,
  kPathDown,     // the session reconnects; I/O is held
  kUnavailable,  // the path is up, the server refuses to open the device; tried again
  kReplaced,     // another device has the name now; down until closed
  kSuperseded,   // another client has opened it for writing since: I/O fails until it is closed
  kRevoked,      // the server's operator has taken it away; I/O is held until remap() or close()
  kLost,         // the path was away for lost_after_ns: I/O fails until it is closed
  kClosed,
};
std::string_view to_string(RemoteState state);

struct RemoteDeviceStatus {
  std::string name;
  std::string server;
  std::string mode;
  RemoteState state = RemoteState::kOpen;
  std::string explanation;
  BlockInfo info;
  BlockStatistics statistics;
  uint32_t in_progress = 0;                   // requests that have begun
  uint32_t waiting = 0;                       // behind queue_depth
  uint64_t requests_sent = 0;                 // parts, flush steps
  std::vector<uint64_t> requests_by_reactor;  // they add up to requests_sent
  uint64_t reopened = 0;                      // on a new path
  uint64_t losses = 0;          // restarts of the server's machine that lost acknowledged writes
  uint64_t flushes_failed = 0;  // to report a loss
  uint64_t give_up_after_ns = base::kNever;
  uint64_t lost_after_ns = base::kNever;
  bool gave_up = false;  // I/O fails until the device is open again
};

class RemoteDevice : public BlockDevice {
 public:
  virtual const std::string& name() const = 0;
  virtual wire::AccessMode mode() const = 0;
  virtual RemoteState state() const = 0;
  virtual RemoteDeviceStatus status() const = 0;
  virtual LatencyHistogram latency(LatencyKind kind) const = 0;
  /// One sentence: what the device waits for and what would unblock it.
  virtual std::string explain() const = 0;
  /// Takes back a device that the server's operator has closed, that the server has refused so far
  /// (at once instead of with the next attempt), or that came back smaller, as it is then. kExists:
  /// it is open. kDisconnected: it waits for its path. kStale: only unmapping helps. Else why not
  /// yet: from here on it is tried again and again. The device outlives the task.
  virtual base::Task<base::Status> remap() = 0;
  /// As if give_up_after_ns were over: while the device is away what it holds fails with kTimedOut,
  /// and so does all I/O until it is back. Nothing where it is not away.
  virtual void give_up() = 0;
  /// Runs on the home reactor when state or size have changed; must not destroy the device.
  virtual void watch(std::function<void()> changed) = 0;
  /// Fails what is held with kCanceled, waits for what is on the wire, tells the server. What is
  /// not answered within RemoteSessionOptions::close_patience_ns is taken back from the server with
  /// the path, as soon as no other device needs that. New requests fail with kCanceled. Call it
  /// once, before the destructor, unless the host is dead.
  virtual base::Task<void> close() = 0;
};

/// A way to the server.
struct RemotePath {
  vhca::Device* device = nullptr;  // outlives the session
  vhca::Address server;
};

struct RemoteSessionOptions {
  trs::ClientOptions transport;   // its `paths` are made of those here
  std::vector<RemotePath> paths;  // further ones
  /// Registered memory for payloads that do not lie in a region of this session; each reactor has
  /// its part, of two requests at least.
  uint64_t copy_pool_bytes = 4 << 20;
  /// Buffers, headers and the room for answers have all their memory from the start: it may be
  /// short just when the kernel writes to a device of this session. Without, they take it with
  /// their first use, which who has hundreds of sessions and no such device may want.
  bool touch_buffers = true;
  /// Reads land in that memory only and are copied out of it; it has room for 64 MiB then, but not
  /// for more than 1024 requests. The server has no key to a user's buffers, and cannot change what
  /// has been read.
  bool guard_reads = false;
  uint64_t reopen_delay_ns = base::kSecond;  // between attempts for devices in kUnavailable
  /// Between two questions for news (sizes, and devices that the server's operator has closed) to a
  /// server that does not push them; and after one without an answer.
  uint64_t news_interval_ns = base::kSecond;
  /// How long open_device() goes on asking while the server says that its disk has not answered.
  uint64_t open_patience_ns = 10 * base::kSecond;
  /// How long RemoteDevice::close() waits for what the server does not answer before it gives up
  /// the path for it, unless another device needs the path. kNever: always waits.
  uint64_t close_patience_ns = 30 * base::kSecond;
};

class RemoteSession {
 public:
  virtual ~RemoteSession() = default;  // close() first, unless the host is dead
  /// Connects and exchanges versions. Errors: those of trs::ClientSession::open; kProtocol for a
  /// server that answers a version that was not offered.
  static base::Task<base::Result<std::unique_ptr<RemoteSession>>> open(
      vhca::Device& device, RemoteSessionOptions options);
  /// Opens an export. The session outlives the device. Several may be under way; one whose disk
  /// hangs at the server does not delay the others. Errors: the server's refusal, with its words if
  /// it is Braid's; kTimedOut after `open_patience_ns`; kDisconnected while the path is down;
  /// kExists if it is open here already, or being opened; kCanceled once close() has begun.
  virtual base::Task<base::Result<std::unique_ptr<RemoteDevice>>> open_device(
      RemoteDeviceOptions options) = 0;
  /// Closes what is still open (the objects stay the caller's), then the session. Not while a
  /// device is being closed by its own close().
  virtual base::Task<void> close() = 0;

  /// Gives up the present path as if it had failed. A device that is being closed then gets back
  /// what a server does not answer; the others go on when there is a path again.
  virtual void drop_path(std::string_view why) = 0;

  /// As trs::ClientSession::link_down().
  virtual size_t link_down(std::span<const vhca::Device* const> adapter, uint8_t port) = 0;

  // --- paths: as trs::ClientSession has them
  /// One more, connected in the background; its id. kNoMemory: too many devices.
  virtual base::Result<size_t> add_path(const RemotePath& path) = 0;
  /// The session outlives the task.
  virtual base::Task<base::Status> remove_path(size_t id) = 0;
  virtual base::Status disconnect_path(size_t id) = 0;
  virtual base::Status reconnect_path(size_t id) = 0;
  virtual std::vector<trs::PathStatus> paths() const = 0;
  virtual trs::PathPolicy path_policy() const = 0;
  virtual void set_path_policy(trs::PathPolicy policy) = 0;

  virtual trs::SessionState state() const = 0;
  virtual const trs::SessionLimits& limits() const = 0;
  virtual trs::ClientStatistics statistics() const = 0;
  /// By the session's reactors.
  virtual std::vector<trs::ClientStatistics> statistics_by_reactor() const = 0;
  virtual std::string server_text() const = 0;
  virtual std::string explain() const = 0;
  virtual std::vector<RemoteDevice*> devices() const = 0;  // in the order of opening
};

}  // namespace braid::bnbd
