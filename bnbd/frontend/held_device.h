// Keeps a block device open for exactly as long as this process lives, without a descriptor of it.
//
// The device's descriptor lies, never received, in the queue of a socket pair of this process. A
// device with "clear on last close" (loop) or "disconnect on close" (nbd) then lives while the
// server does, and goes when it dies. A plain descriptor would do so too, but the kernel closes the
// descriptors of a dying process in no promised order: closing the device first would write its
// dirty pages to a server that no longer answers and whose own descriptor is still open: for ever.
// What lies in a socket's queue is closed strictly after everything in the table of descriptors.
//
// Threads: put() and take() are system calls only, for run_apart; the rest any one thread.
#pragma once

#include "base/result.h"
#include "bnbd/frontend/fd_handle.h"

namespace braid::bnbd {

class HeldDevice {
 public:
  static base::Result<HeldDevice> create();

  /// For the process apart: the end that put() and take() use.
  int put_end() const { return put_end_.get(); }
  int take_end() const { return take_end_.get(); }
  /// Puts a copy of `device_fd` into the queue; 0 or an errno.
  static int put(int put_end, int device_fd);
  /// Takes it out again: a descriptor of the calling process; -1 if the queue is empty.
  static int take(int take_end);

  /// Lets go. May wait for the device's dirty pages to be written or refused: from a worker only,
  /// and only when the device's server no longer depends on this process (its session has ended).
  void drop();

 private:
  UniqueFd put_end_;
  UniqueFd take_end_;
};

}  // namespace braid::bnbd
