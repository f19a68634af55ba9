// Block devices for ordinary NBD clients (libnbd, QEMU, nbdkit, nbd-client, fio): a server on unix
// sockets and TCP, with several exports by name. docs/nbd-server.md.
//
// Clients are not trusted: who is still in the handshake is bounded in number and time, who has an
// export in number and memory, and one that takes no answers leaves the others their part.
//
// Threads: the home reactor's; requests are served on the reactors of each device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "base/result.h"
#include "base/stream_socket.h"
#include "base/task.h"
#include "bnbd/block.h"
#include "bnbd/kernel_device.h"

namespace braid::bnbd {

inline constexpr uint16_t kNbdPort = 10809;  // IANA's for NBD

struct NbdServiceOptions {
  std::string unix_path;                    // absolute; empty: none
  std::vector<base::SocketAddress> listen;  // TCP; port 0: a free one
  /// What a client gets that names none: it is refused in words while there is no such export, as
  /// what it writes is meant for no other. Empty: the first export.
  std::string default_export;
  /// Clients in the handshake; of more than this the oldest goes.
  unsigned half_open_max = 32;
  uint64_t handshake_timeout_ns = 10 * base::kSecond;
  /// How long the end of an export waits for clients to take the answers that they are due.
  uint64_t linger_ns = 2 * base::kSecond;
};

struct NbdExportOptions {
  std::string name;
  std::string description;
  bool read_only = false;
  bool latencies = false;  // are counted, for a device that does not do so itself
  /// Requests in flight on each of the device's reactors; each has a buffer of at most 1 MiB, which
  /// is made when there are as many.
  unsigned slots = 64;
  /// Connections of each of the device's reactors. Each is sure of a part of half of the slots.
  unsigned connections_max = 32;
};

struct NbdServiceStatus {
  unsigned half_open = 0;
  uint64_t accepted = 0;
  uint64_t granted = 0;    // have got an export
  uint64_t refused = 0;    // left the handshake without one
  uint64_t timed_out = 0;  // of those, were too slow
};

class NbdService {
 public:
  /// kBusy: somebody serves at the unix socket already, or at the port (kExists), or another
  /// program keeps the socket's folder locked, for which this waits a second. A socket that a dead
  /// server has left is replaced. kInvalid: a path that is too long or no socket.
  static base::Result<std::unique_ptr<NbdService>> create(base::Reactor& reactor,
                                                          NbdServiceOptions options);
  /// Its exports are gone by then. Removes the socket's file.
  virtual ~NbdService() = default;

  /// `device` outlives what is returned, whose path() is the
  /// URI that clients use. kExists: there is one of that name. The service outlives it, too.
  virtual base::Task<base::Result<std::unique_ptr<KernelDevice>>> add_export(
      BlockDevice& device, NbdExportOptions options) = 0;
  /// By each socket: "nbd+unix:///disk?socket=/run/braid.sock", "nbd://127.0.0.1:10809/disk", with
  /// what a URI cannot hold as %XX.
  virtual std::vector<std::string> uris(const std::string& export_name) const = 0;
  virtual NbdServiceStatus status() const = 0;
  /// While the service is ending nobody gets an export any more, and who asks is told so; clients
  /// that have one keep it. To be said before the exports are taken away one by one: their clients
  /// come back at once. False: it goes on.
  virtual void set_ending(bool ending) = 0;
};

}  // namespace braid::bnbd
