// May a device go on after the server opened it again? Pure.
#pragma once

#include <string>

#include "bnbd/block.h"
#include "bnbd/wire.h"

namespace braid::bnbd::client {

struct ReopenVerdict {
  bool replaced = false;    // not the disk it was: stays down
  std::string why;          // it was replaced
  bool shrank = false;      // that is why
  bool superseded = false;  // the same disk, but another client is or was its writer since
  bool restarted = false;   // the same disk, of another incarnation
};

/// `before`, `tenure`: what the device was; `now`: the server's answer. A server without Braid's
/// extension tells no identity: then size and block size must do, and neither a restart is seen nor
/// a change of writers. `smaller_too`: its user has said that it may have shrunk.
ReopenVerdict judge_reopen(const BlockInfo& before, uint64_t tenure, const wire::OpenedDevice& now,
                           bool smaller_too);

/// The device's properties as its users see them.
BlockInfo describe(const wire::OpenedDevice& opened, bool read_only, uint32_t queue_depth,
                   uint32_t max_io_bytes);

}  // namespace braid::bnbd::client
