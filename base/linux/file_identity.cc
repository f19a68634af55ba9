#include "base/linux/file_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/linux/fd.h"

namespace braid::base {
namespace {

/// Not for now but for good: the file system, or a sandbox, has no handles.
bool has_no_handles(int sys_errno) {
  return sys_errno == EOPNOTSUPP || sys_errno == EOVERFLOW || sys_errno == ENOSYS ||
         sys_errno == EPERM;
}

bool has_no_version(int sys_errno) {
  return sys_errno == ENOTTY || sys_errno == ENOSYS || sys_errno == EOPNOTSUPP ||
         sys_errno == EINVAL || sys_errno == EPERM;
}

std::string digest(const file_handle& handle) {
  const XXH128_hash_t hash = XXH3_128bits(handle.f_handle, handle.handle_bytes);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string file_identity(const FileFacts& facts, const std::string& boot_id) {
  const std::string inode = fmt::format("file:{}:{}", facts.file_system, facts.inode);
  if (!facts.birth.empty()) return fmt::format("{}:{}", inode, facts.birth);
  if (!facts.generation.empty() && facts.lasting) {
    return fmt::format("{}:{}", inode, facts.generation);
  }
  return fmt::format("{}:{}:{}", inode, facts.generation, boot_id);
}

Result<std::string> file_generation(int fd) {
  alignas(file_handle) std::array<std::byte, sizeof(file_handle) + MAX_HANDLE_SZ> space{};
  auto* const handle = reinterpret_cast<file_handle*>(space.data());
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount = 0;
  if (::name_to_handle_at(fd, "", handle, &mount, AT_EMPTY_PATH) == 0) {
    return fmt::format("handle-{}-{}", handle->handle_type, digest(*handle));
  }
  if (!has_no_handles(errno)) return sys_error(errno, "cannot tell a file's handle");
  int version = 0;
  if (::ioctl(fd, FS_IOC_GETVERSION, &version) == 0) return fmt::format("version-{}", version);
  if (!has_no_version(errno)) return sys_error(errno, "cannot tell a file's generation");
  return std::string();
}

Result<std::string> identify_file(int fd) {
  struct statfs system;
  struct statx file;
  if (::fstatfs(fd, &system) != 0 ||
      ::statx(fd, "", AT_EMPTY_PATH, STATX_BTIME | STATX_INO, &file) != 0) {
    return sys_error(errno, "cannot identify a file");
  }
  FileFacts facts;
  const auto* const id = reinterpret_cast<const unsigned*>(&system.f_fsid);
  facts.file_system = fmt::format("{:08x}{:08x}", id[0], id[1]);
  facts.inode = file.stx_ino;
  if ((file.stx_mask & STATX_BTIME) != 0) {
    facts.birth = fmt::format("{}.{:09}", file.stx_btime.tv_sec, file.stx_btime.tv_nsec);
  } else {
    BRAID_TRY(facts.generation, file_generation(fd));
    facts.lasting = system.f_type != FUSE_SUPER_MAGIC;  // numbers that its daemon gives as it runs
  }
  return file_identity(facts, boot_id());
}

}  // namespace braid::base
