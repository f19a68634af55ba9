// How a kernel device is taken away, whichever front end it has: ask who uses it, try politely for
// a while, use force only when told to.
//
// Threads: run_detach on the reactor that serves the device; the steps on workers, `cut_off` on the
// reactor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/reactor.h"
#include "base/result.h"
#include "base/task.h"

namespace braid::bnbd {

struct DetachSteps {
  std::string name;  // below /dev: "loop3"
  bool force = false;
  uint64_t force_flush_timeout_ns = 0;
  /// Claims the device, writes back its dirty pages, removes it. kBusy and kIo change nothing.
  std::function<base::Status()> remove_politely;
  /// Removes it whoever uses it; kBusy: it goes when its last user closes it.
  std::function<base::Status()> remove_by_force;
  /// Ends the session: the kernel's I/O fails from now on. Idempotent. (detach_from sets it.)
  std::function<void()> cut_off;
};

base::Task<base::Status> run_detach(base::Reactor& reactor, DetachSteps steps);

/// run_detach() for a device that `server` (a FuseServer, an NbdServer) serves: the kernel ends the
/// session on the way, and afterwards the BlockDevice completes what it was given.
template <typename Server>
base::Task<base::Status> detach_from(base::Reactor& reactor, Server& server, DetachSteps steps) {
  steps.cut_off = [&server] { server.stop(); };
  if (!server.alive()) steps.force = true;
  server.expect_end(true);
  const base::Status status = co_await run_detach(reactor, std::move(steps));
  server.expect_end(false);
  if (!status.ok()) co_return status;
  server.stop();
  co_await server.drained();
  co_return base::ok_status();
}

}  // namespace braid::bnbd
