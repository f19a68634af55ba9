#include "vhca/ibv/words.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace braid::vhca::ibv {
namespace {

using base::Errc;
using base::Error;
using base::make_error;

// Reasons of a REJ message (InfiniBand Architecture, table "REJ reasons"; enum ib_cm_rej_reason).
enum class RejectReason : int {
  kNoResources = 3,
  kTimeout = 4,
  kInvalidServiceId = 8,
  kStaleConnection = 10,
  kConsumerDefined = 28,
};

Error rejected(int status, std::string_view peer) {
  switch (static_cast<RejectReason>(status)) {
    case RejectReason::kInvalidServiceId:
      return make_error(Errc::kRefused, "nobody listens at {}", peer);
    case RejectReason::kNoResources:
      return make_error(Errc::kRefused, "{} has no room for another connection", peer);
    case RejectReason::kTimeout:
      return make_error(Errc::kDisconnected, "{} gave up before the connection stood", peer);
    case RejectReason::kStaleConnection:
      return make_error(Errc::kRefused,
                        "{} still holds a former connection of this QP number; try again", peer);
    case RejectReason::kConsumerDefined:
      return make_error(Errc::kRefused, "{} refused the connection", peer);
  }
  // iWARP: a negative errno of its TCP connection.
  if (status == -ECONNREFUSED) return make_error(Errc::kRefused, "nobody listens at {}", peer);
  return make_error(Errc::kRefused, "{} refused the connection (CM reason {})", peer, status);
}

}  // namespace

Error verbs_error(int sys_errno, std::string_view what) {
  const Error plain = base::sys_error(sys_errno, what);
  switch (sys_errno) {
    case ENOMEM:
      return Error(plain.code(), plain.message() +
                                     " (the device's tables are full, or more memory would be "
                                     "locked than `ulimit -l` allows)");
    case EACCES:
    case EPERM:
      return Error(plain.code(), plain.message() + " (may this user open /dev/infiniband/*?)");
    case ENODEV:
      return Error(plain.code(), plain.message() +
                                     " (the RDMA device is gone, or has no port for "
                                     "that address)");
    default:
      return plain;
  }
}

Error no_rdma_error(int sys_errno, std::string_view what) {
  if (sys_errno == EACCES || sys_errno == EPERM) return verbs_error(sys_errno, what);
  return make_error(Errc::kNotSupported,
                    "{}: {} (are the kernel's modules ib_uverbs and rdma_ucm loaded?)", what,
                    base::sys_error(sys_errno, "the kernel has no RDMA drivers").message());
}

Error connect_error(rdma_cm_event_type type, int status, std::string_view peer) {
  switch (type) {
    case RDMA_CM_EVENT_REJECTED:
      return rejected(status, peer);
    case RDMA_CM_EVENT_ADDR_ERROR:
      if (status == -ETIMEDOUT) {
        return make_error(Errc::kTimedOut, "{} does not answer on its network (no ARP or ND reply)",
                          peer);
      }
      return base::sys_error(status < 0 ? -status : EHOSTUNREACH,
                             fmt::format("finding the way to {}", peer));
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return base::sys_error(status < 0 ? -status : EHOSTUNREACH,
                             fmt::format("finding a route to {}", peer));
    case RDMA_CM_EVENT_UNREACHABLE:
      return make_error(Errc::kTimedOut, "{} does not answer (connect request unanswered)", peer);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return make_error(Errc::kDisconnected, "the RDMA device to {} was removed", peer);
    case RDMA_CM_EVENT_DISCONNECTED:
      return make_error(Errc::kDisconnected, "{} disconnected", peer);
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return base::sys_error(status < 0 ? -status : EIO, fmt::format("connecting to {}", peer));
    default:
      return make_error(Errc::kProtocol, "connecting to {}: unexpected CM event {} (status {})",
                        peer, static_cast<int>(type), status);
  }
}

bool rejected_by_program(rdma_cm_event_type type, int status) {
  return type == RDMA_CM_EVENT_REJECTED &&
         status == static_cast<int>(RejectReason::kConsumerDefined);
}

std::string_view port_state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_NOP:
      return "NOP";
    case IBV_PORT_DOWN:
      return "DOWN";
    case IBV_PORT_INIT:
      return "INIT";
    case IBV_PORT_ARMED:
      return "ARMED";
    case IBV_PORT_ACTIVE:
      return "ACTIVE";
    case IBV_PORT_ACTIVE_DEFER:
      return "ACTIVE_DEFER";
  }
  return "unknown";
}

std::string gid_ip_text(const Gid& gid) {
  static constexpr std::array<uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (std::equal(kMapped.begin(), kMapped.end(), gid.raw)) {
    ::inet_ntop(AF_INET, gid.raw + kMapped.size(), text.data(), text.size());
    return text.data();
  }
  const bool none = std::all_of(gid.raw, gid.raw + 16, [](uint8_t byte) { return byte == 0; });
  const bool link_local = gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
  if (none || link_local) return {};
  ::inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
  return text.data();
}

}  // namespace braid::vhca::ibv
