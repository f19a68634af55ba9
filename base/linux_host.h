// LinuxHost: the Host of a real process.
//
// Create one in main, before other threads, and destroy it last: everything made from it borrows
// it.
#pragma once

#include <memory>

#include "base/host.h"
#include "base/log.h"

namespace braid::base {

struct LinuxHostOptions {
  std::string log_name = "braid";
  LogLevel log_level = LogLevel::kInfo;
  /// Null: stderr. One that may block is written to by a thread of its own: lines are dropped, and
  /// counted, rather than waited for. The last of them are written when the last Logger goes, for
  /// at most 2 s; lines of the moment of a crash may be lost.
  std::shared_ptr<LogSink> log_sink;
  /// Threads for execute(), started as they are needed. They may all wait for disks that hang, and
  /// each disk of this host, served or mapped, may keep one.
  size_t workers_max = 256;
  /// Lets processes of the same user copy to and from all of this one's memory where the Yama
  /// security module would forbid it (prctl PR_SET_PTRACER). In-host peers need it for registered
  /// memory that is not in a Segment, and for nothing else.
  bool allow_peer_copy = false;
  /// Reactors of this host sleep as soon as they have nothing to do. Then a heavy fence for each
  /// sleep, which interrupts the processor of a peer at work, costs more than a full fence in each
  /// message: has_heavy_fence() is false.
  bool sleeps_at_once = false;
};

/// As many descriptors as the administrator lets this process have. The usual soft limit of 1024 is
/// for programs that use select(), which Braid does not; a connection over TCP takes two. Before
/// the host is made, which makes room for them.
void raise_descriptor_limit();

/// Fails if the kernel lacks what Braid cannot do without: io_uring (5.11 or newer), openat2,
/// memfd. The message says which, and what to change.
Result<std::unique_ptr<Host>> create_linux_host(const LinuxHostOptions& options = {});

}  // namespace braid::base
