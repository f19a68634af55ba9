#include "bnbd/frontend/fuse_mount.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mount.h>

#include <cerrno>
#include <string>
#include <utility>

namespace braid::bnbd {

namespace {

base::Error failed(int sys_errno, const char* what) {
  base::Error error = base::sys_error(sys_errno, what);
  if (sys_errno == EPERM || sys_errno == EACCES) {
    return error.with("a FUSE file system needs root (CAP_SYS_ADMIN)");
  }
  return error;
}

}  // namespace

base::Result<FuseMount> create_fuse_mount(uint32_t max_read_bytes) {
  FuseMount mount;
  mount.device.reset(::open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!mount.device.valid()) {
    if (errno == ENOENT || errno == ENODEV || errno == ENXIO) {
      return base::make_error(base::Errc::kNotSupported, "this kernel has no /dev/fuse");
    }
    return failed(errno, "open /dev/fuse");
  }
  const UniqueFd context(::fsopen("fuse", FSOPEN_CLOEXEC));
  if (!context.valid()) return failed(errno, "fsopen(fuse) (Linux 5.4 or later)");

  const std::pair<const char*, std::string> options[] = {
      {"source", "braid"},
      {"subtype", "braid"},
      {"fd", fmt::format("{}", mount.device.get())},
      {"rootmode", "40000"},
      {"user_id", "0"},
      {"group_id", "0"},
      {"max_read", fmt::format("{}", max_read_bytes)},
  };
  for (const auto& [key, value] : options) {
    if (::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0) != 0) {
      return failed(errno, "fsconfig of a FUSE file system").with("option {}={}", key, value);
    }
  }
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return failed(errno, "create a FUSE file system");
  }
  mount.root.reset(::fsmount(context.get(), FSMOUNT_CLOEXEC,
                             MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  if (!mount.root.valid()) return failed(errno, "fsmount of a FUSE file system");
  return mount;
}

}  // namespace braid::bnbd
