// A file's note: an extended attribute of eight bytes, little-endian.
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>

#include "base/endian.h"
#include "base/linux/file.h"

namespace braid::base {
namespace {

constexpr const char* kAttribute = "user.braid.note";

/// EPERM: the kernel keeps attributes of users for files and directories only.
bool has_no_place(int sys_errno) {
  return sys_errno == ENOTSUP || sys_errno == ENOSYS || sys_errno == EPERM;
}

}  // namespace

Result<uint64_t> LinuxFile::note() const {
  le64 note;
  const ssize_t length = ::fgetxattr(fd(), kAttribute, &note, sizeof(note));
  if (length == sizeof(note)) return uint64_t{note};
  if (length >= 0 || errno == ERANGE) {
    return make_error(Errc::kInvalid,
                      "the attribute {} of the file is no note of ours: must have {} bytes",
                      kAttribute, sizeof(note));
  }
  if (errno == ENODATA) return uint64_t{0};
  if (has_no_place(errno)) {
    return make_error(Errc::kNotSupported, "its file system keeps no attribute {}", kAttribute);
  }
  return sys_error(errno, fmt::format("reading the attribute {}", kAttribute));
}

Status LinuxFile::set_note(uint64_t note) {
  const le64 stored = note;
  BRAID_TRY(const Fd apart, open_apart());
  if (::fsetxattr(fd(), kAttribute, &stored, sizeof(stored), 0) != 0) {
    if (has_no_place(errno)) {
      return make_error(Errc::kNotSupported, "its file system keeps no attribute {}", kAttribute);
    }
    return sys_error(errno, fmt::format("setting the attribute {}", kAttribute));
  }
  if (::fsync(apart.fd()) != 0) return sys_error(errno, "making an attribute durable");
  return {};
}

}  // namespace braid::base
