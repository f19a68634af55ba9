// A device of nbd.ko from its connection to its end, and what makes it go with this process:
//
//   connect()   the keeper first, then the kernel gets the sockets: a kill at any moment after
//               leaves nobody who could disconnect it otherwise
//   tie()       the kernel's limits; the device is held open and disconnects on its last close
//   remove()    disconnects it
//
// Threads: everything blocks, for a worker; fail_waiting() beside the others, the rest one at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bnbd/frontend/fd_handle.h"
#include "bnbd/frontend/held_device.h"
#include "bnbd/frontend/nbd_keeper.h"
#include "bnbd/frontend/nbd_netlink.h"

namespace braid::bnbd {

enum class NbdRemoval : uint8_t {
  kPolite,   // claims it exclusively (kBusy) and writes back dirty pages (kIo): else it stays
  kIfClean,  // the same, but refuses when pages are dirty (kIo), or the kernel cannot tell
             // (kNotSupported); no I/O
  kForced,   // at once, whoever uses it
};

class NbdConnection {
 public:
  /// `kernel_ends`: the kernel's ends of the socket pairs.
  static base::Result<std::shared_ptr<NbdConnection>> create(NbdParameters parameters,
                                                             uint32_t max_transfer_bytes,
                                                             std::vector<UniqueFd> kernel_ends);
  base::Status connect();
  base::Status tie();
  base::Status remove(NbdRemoval how);
  /// After connect().
  base::Status resize(uint64_t size_bytes) const;
  /// Fails what the kernel waits for; the device stays until remove(). After connect().
  void fail_waiting() const;
  /// N of /dev/nbdN, after connect().
  int index() const { return index_; }

 private:
  base::Status try_index(int index);
  base::Status claim(NbdRemoval how) const;
  bool is_ours() const;

  NbdParameters parameters_;
  uint32_t max_transfer_bytes_ = 0;
  std::vector<UniqueFd> kernel_ends_;
  HeldDevice held_;
  std::unique_ptr<NbdKeeper> keeper_;
  int index_ = -1;
  bool kernel_tells_owner_ = false;  // has the file "backend": Linux 5.14
  bool removed_ = false;             // the number may be another's by now
};

}  // namespace braid::bnbd
