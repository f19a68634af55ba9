// How a kernel device is taken away, whichever front end it has: ask who uses it, try politely for
// a while, use force only when told to, and then not before its users' data had a chance.
//
// Threads: run_detach on the reactor that serves the device; the steps on workers, but `cut_off`,
// `errors` and `answered`, on the reactor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/reactor.h"
#include "base/result.h"
#include "base/task.h"
#include "bnbd/kernel_device.h"

namespace braid::bnbd {

struct DetachSteps {
  std::string name;  // below /dev: "loop3"
  DetachMode mode = DetachMode::kPolite;
  uint64_t force_flush_timeout_ns = 0;
  /// Claims the device, writes back its dirty pages, removes it. kBusy and kIo change nothing.
  std::function<base::Status()> remove_politely;
  /// The same without any I/O. kIo: something is dirty; kNotSupported: this kernel cannot tell.
  std::function<base::Status()> remove_if_clean;
  /// Has what its users wrote reach the device. Empty: there is no hope of that.
  std::function<base::Status()> write_back;
  /// Removes it whoever uses it; kBusy: it goes when its last user closes it.
  std::function<base::Status()> remove_by_force;
  /// Fails what the kernel waits for, where cut_off alone does not. May run beside the others.
  std::function<void()> fail_waiting;
  /// Ends the session: the kernel's I/O fails from now on. Idempotent. (detach_from sets it.)
  std::function<void()> cut_off;
  /// Requests that failed, and that ended at all, so far. (detach_from sets both.)
  std::function<uint64_t()> errors;
  std::function<uint64_t()> answered;
};

base::Task<base::Result<Detached>> run_detach(base::Reactor& reactor, DetachSteps steps);

/// run_detach() for a device that `server` (a FuseServer, an NbdServer) serves: the kernel ends the
/// session on the way, and afterwards the BlockDevice completes what it was given.
template <typename Server>
base::Task<base::Result<Detached>> detach_from(base::Reactor& reactor, Server& server,
                                               DetachSteps steps) {
  steps.cut_off = [&server] { server.stop(); };
  steps.errors = [&server] { return server.statistics().errors; };
  steps.answered = [&server] { return server.statistics().answered(); };
  if (!server.alive()) {
    steps.mode = DetachMode::kForce;
    steps.write_back = nullptr;
  }
  server.expect_end(true);
  base::Result<Detached> detached = co_await run_detach(reactor, std::move(steps));
  server.expect_end(false);
  if (!detached.ok()) co_return detached;
  server.stop();
  co_await server.drained();
  co_return detached;
}

}  // namespace braid::bnbd
