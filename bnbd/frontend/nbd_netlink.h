// The three requests to nbd.ko: connect, reconfigure, disconnect. Netlink only: a device set up by
// ioctl belongs to a blocked thread and cannot be configured again.
//
// Threads: all functions block, for a worker.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/host.h"
#include "base/result.h"

namespace braid::bnbd {

/// After so long nbd.ko fails a request, and with it the connection. The BlockDevice decides how
/// long it holds a request, so nbd.ko must not; but 0 would leave requests for ever if this process
/// and its NbdKeeper are killed at once, and with several connections it would mean 30 s.
inline constexpr uint64_t kNbdRequestTimeoutNs = 24 * 3600 * base::kSecond;

struct NbdParameters {
  uint64_t size_bytes = 0;
  uint32_t block_bytes = 512;
  uint64_t transmission_flags = 0;
  uint32_t dead_connection_timeout_s = 0;
  std::string identifier;  // names this attachment in sysfs, file "backend"
};

/// Whether this kernel has nbd.ko; loads the module if it can, which is not tried within 10 s of a
/// failure but `again`. kNotSupported: it has not, and why.
base::Status find_nbd_module(bool again = false);

/// Gives the sockets to /dev/nbdN, which is made if there is none. kBusy: it is connected already.
base::Status nbd_connect(const NbdParameters& parameters, std::span<const int> socket_fds,
                         int index);
/// The device is so long from now on.
base::Status nbd_resize(int index, const std::string& identifier, uint64_t size_bytes);
/// From now on the device disconnects itself when its last user closes it.
base::Status nbd_disconnect_on_close(int index, const std::string& identifier);
/// Ends the device at once, whoever uses it: what is in flight fails.
base::Status nbd_disconnect(int index);
/// The same as a message to send later.
base::Result<std::vector<std::byte>> make_nbd_disconnect(int index);

}  // namespace braid::bnbd
