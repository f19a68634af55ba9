// The last moment at which nothing of a client waited to be read: a flush that is found later was
// asked for after it. While requests wait, for want of a slot or in a socket, writes are answered
// of which the user of a flush among them had not heard (BlockDevice::note_flush()).
//
// Threads: the device's reactor. What is on its way over a network has not begun to wait.
#pragma once

#include <poll.h>

#include "bnbd/block.h"

namespace braid::bnbd {

class QuietMoment {
 public:
  /// Nothing waits now.
  void is_now(BlockDevice& device) {
    note_ = {};
    device.note_flush(note_);
  }
  /// Looks whether it is now, by a system call: when a flush that failed has been answered, as the
  /// next one shall not fail for what this one has told. True: it is.
  bool look(BlockDevice& device, int source_fd) {
    QuietMoment before;
    before.is_now(device);  // what is told on other reactors meanwhile is not known to all
    struct pollfd source = {.fd = source_fd, .events = POLLIN, .revents = 0};
    if (::poll(&source, 1, 0) != 0) return false;
    *this = before;
    return true;
  }
  const FlushNote& note() const { return note_; }

 private:
  FlushNote note_;
};

}  // namespace braid::bnbd
