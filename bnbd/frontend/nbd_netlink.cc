#include "bnbd/frontend/nbd_netlink.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/nbd-netlink.h>
#include <linux/nbd.h>
#include <spawn.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>

#include "bnbd/frontend/netlink.h"

namespace braid::bnbd {

using base::Errc;

namespace {

// As in headers of kernels from 5.14 on.
constexpr uint16_t kBackendIdentifier = 10;

struct Nbd {
  GenericNetlink netlink;
  uint16_t family = 0;

  static base::Result<Nbd> open() {
    BRAID_TRY(auto netlink, GenericNetlink::open());
    BRAID_TRY(const uint16_t family, netlink.family(NBD_GENL_FAMILY_NAME));
    return Nbd{std::move(netlink), family};
  }
};

// How long a kernel without the module is not asked for it again: modprobe takes some milliseconds,
// and a node maps many disks in a row.
constexpr uint64_t kModprobeRestNs = 10 * base::kSecond;

uint64_t clock_ns() {
  struct timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * base::kSecond + static_cast<uint64_t>(now.tv_nsec);
}

bool run_modprobe() {
  for (const char* path : {"/sbin/modprobe", "/usr/sbin/modprobe"}) {
    char program[] = "modprobe";
    char quiet[] = "-q";
    char module[] = "nbd";
    char* arguments[] = {program, quiet, module, nullptr};
    char* no_environment[] = {nullptr};
    pid_t pid = -1;
    if (::posix_spawn(&pid, path, nullptr, nullptr, arguments, no_environment) != 0) continue;
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return false;
}

}  // namespace

base::Status find_nbd_module(bool again) {
  static std::atomic<uint64_t> not_before_ns{0};
  auto nbd = Nbd::open();
  if (nbd.code() == Errc::kNotFound && (again || clock_ns() >= not_before_ns.load())) {
    if (run_modprobe()) nbd = Nbd::open();
    if (nbd.code() == Errc::kNotFound) not_before_ns.store(clock_ns() + kModprobeRestNs);
  }
  if (nbd.ok()) return base::ok_status();
  if (nbd.code() != Errc::kNotFound) return nbd.error().with("ask the kernel for nbd");
  struct utsname kernel = {};
  ::uname(&kernel);
  return base::make_error(Errc::kNotSupported, "this kernel ({}) has no nbd module",
                          kernel.release);
}

base::Status nbd_connect(const NbdParameters& parameters, std::span<const int> socket_fds,
                         int index) {
  BRAID_TRY(auto nbd, Nbd::open());
  NetlinkAttributes request;
  request.put_u32(NBD_ATTR_INDEX, static_cast<uint32_t>(index));
  request.put_u64(NBD_ATTR_SIZE_BYTES, parameters.size_bytes);
  request.put_u64(NBD_ATTR_BLOCK_SIZE_BYTES, parameters.block_bytes);
  request.put_u64(NBD_ATTR_SERVER_FLAGS, parameters.transmission_flags);
  request.put_u64(NBD_ATTR_TIMEOUT, kNbdRequestTimeoutNs / base::kSecond);
  request.put_u64(NBD_ATTR_DEAD_CONN_TIMEOUT, parameters.dead_connection_timeout_s);
  request.put_string(kBackendIdentifier, parameters.identifier);
  NetlinkAttributes sockets;
  for (const int fd : socket_fds) {
    NetlinkAttributes socket;
    socket.put_u32(NBD_SOCK_FD, static_cast<uint32_t>(fd));
    sockets.put_nested(NBD_SOCK_ITEM, socket);
  }
  request.put_nested(NBD_ATTR_SOCKETS, sockets);

  auto answer = nbd.netlink.exchange(nbd.family, NBD_CMD_CONNECT, NBD_GENL_VERSION, request);
  if (!answer.ok()) return answer.error().with("connect /dev/nbd{}", index);
  return base::ok_status();
}

base::Status nbd_resize(int index, const std::string& identifier, uint64_t size_bytes) {
  BRAID_TRY(auto nbd, Nbd::open());
  NetlinkAttributes request;
  request.put_u32(NBD_ATTR_INDEX, static_cast<uint32_t>(index));
  request.put_string(kBackendIdentifier, identifier);
  request.put_u64(NBD_ATTR_SIZE_BYTES, size_bytes);
  auto answer = nbd.netlink.exchange(nbd.family, NBD_CMD_RECONFIGURE, NBD_GENL_VERSION, request);
  if (!answer.ok()) return answer.error().with("give /dev/nbd{} {} bytes", index, size_bytes);
  return base::ok_status();
}

base::Status nbd_disconnect_on_close(int index, const std::string& identifier) {
  BRAID_TRY(auto nbd, Nbd::open());
  NetlinkAttributes request;
  request.put_u32(NBD_ATTR_INDEX, static_cast<uint32_t>(index));
  request.put_string(kBackendIdentifier, identifier);
  request.put_u64(NBD_ATTR_CLIENT_FLAGS, NBD_CFLAG_DISCONNECT_ON_CLOSE);
  auto answer = nbd.netlink.exchange(nbd.family, NBD_CMD_RECONFIGURE, NBD_GENL_VERSION, request);
  if (!answer.ok()) return answer.error().with("configure /dev/nbd{}", index);
  return base::ok_status();
}

base::Status nbd_disconnect(int index) {
  BRAID_TRY(auto nbd, Nbd::open());
  NetlinkAttributes request;
  request.put_u32(NBD_ATTR_INDEX, static_cast<uint32_t>(index));
  auto answer = nbd.netlink.exchange(nbd.family, NBD_CMD_DISCONNECT, NBD_GENL_VERSION, request);
  if (!answer.ok()) return answer.error().with("disconnect /dev/nbd{}", index);
  return base::ok_status();
}

base::Result<std::vector<std::byte>> make_nbd_disconnect(int index) {
  BRAID_TRY(auto nbd, Nbd::open());
  NetlinkAttributes request;
  request.put_u32(NBD_ATTR_INDEX, static_cast<uint32_t>(index));
  return make_netlink_request(nbd.family, NBD_CMD_DISCONNECT, NBD_GENL_VERSION, request, 1);
}

}  // namespace braid::bnbd
