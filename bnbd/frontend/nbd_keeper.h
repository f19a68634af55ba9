// Disconnects an nbd device when this process dies.
//
// nbd.ko does not fail the requests that it has sent on a connection which then ends: they wait for
// a timeout, or for a disconnect. A timeout would also hit requests that Braid holds while a path
// is down. So a helper waits for the end of this process and sends the disconnect.
//
// The helper is a process that shares this one's memory (as one from run_apart does) but nothing
// else: it waits on a pipe of which this process has the other end. A few system calls long, it has
// a small stack and thread-local storage of its own. A KILL of both at once (a whole control group)
// is beyond it: then the request timeout given to nbd.ko is what remains.
//
// Threads: any one; start() and stop() on a worker.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "bnbd/frontend/fd_handle.h"

namespace braid::bnbd {

class NbdKeeper {
 public:
  /// `socket` (generic netlink) is where it sends. It sends only while the kernel says that the
  /// device is the one with this identifier, so that another owner of its number is left alone.
  static base::Result<std::unique_ptr<NbdKeeper>> start(UniqueFd socket,
                                                        const std::string& identifier);
  /// The device that is about to be connected: the message that disconnects it, and the file in
  /// sysfs that has its identifier once it is. Instead of the one before.
  void watch(std::span<const std::byte> disconnect, const std::string& identifier_path);
  /// The device is connected, by a kernel that has no such files (before Linux 5.14).
  void trust_number();
  /// Ends the helper without a disconnect.
  ~NbdKeeper();
  NbdKeeper(const NbdKeeper&) = delete;
  NbdKeeper& operator=(const NbdKeeper&) = delete;

 private:
  struct Job;
  struct Target;
  NbdKeeper() = default;

  std::vector<std::unique_ptr<Target>> targets_;  // the helper may look at any of them
  std::unique_ptr<Job> job_;
  UniqueFd write_end_;
  void* memory_ = nullptr;  // the helper's stack and thread-local storage
  int pid_ = -1;
};

}  // namespace braid::bnbd
