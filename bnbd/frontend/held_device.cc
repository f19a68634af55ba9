#include "bnbd/frontend/held_device.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace braid::bnbd {

base::Result<HeldDevice> HeldDevice::create() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return base::sys_error(errno, "make a socket pair");
  }
  HeldDevice held;
  held.put_end_.reset(ends[0]);
  held.take_end_.reset(ends[1]);
  return held;
}

int HeldDevice::put(int put_end, int device_fd) {
  char byte = 0;
  struct iovec piece = {&byte, 1};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  struct msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  struct cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &device_fd, sizeof(int));
  return ::sendmsg(put_end, &message, MSG_NOSIGNAL) == 1 ? 0 : errno;
}

int HeldDevice::take(int take_end) {
  char byte = 0;
  struct iovec piece = {&byte, 1};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  struct msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (::recvmsg(take_end, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const struct cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return -1;
  int device_fd = -1;
  std::memcpy(&device_fd, CMSG_DATA(rights), sizeof(int));
  return device_fd;
}

void HeldDevice::drop() {
  put_end_.reset();
  take_end_.reset();
}

}  // namespace braid::bnbd
