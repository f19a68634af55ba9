// A file's note and mark: extended attributes of one and of two words, little-endian.
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "base/endian.h"
#include "base/linux/file.h"

namespace braid::base {
namespace {

constexpr const char* kNote = "user.braid.note";
constexpr const char* kMark = "user.braid.mark";

/// EPERM: the kernel keeps attributes of users for files and directories only.
bool has_no_place(int sys_errno) {
  return sys_errno == ENOTSUP || sys_errno == ENOSYS || sys_errno == EPERM;
}

Error no_place(const char* attribute) {
  return make_error(Errc::kNotSupported, "its file system keeps no attribute {}", attribute);
}

/// `words` stay as they are if there is no such attribute.
Status get(int fd, const char* attribute, std::span<le64> words) {
  const ssize_t length = ::fgetxattr(fd, attribute, words.data(), words.size_bytes());
  if (length == static_cast<ssize_t>(words.size_bytes())) return {};
  if (length >= 0 || errno == ERANGE) {
    return make_error(Errc::kInvalid,
                      "the attribute {} of the file is none of ours: must have {} bytes", attribute,
                      words.size_bytes());
  }
  if (errno == ENODATA) return {};
  if (has_no_place(errno)) return no_place(attribute);
  return sys_error(errno, fmt::format("reading the attribute {}", attribute));
}

Status set(int fd, const char* attribute, std::span<const le64> words) {
  if (::fsetxattr(fd, attribute, words.data(), words.size_bytes(), 0) == 0) return {};
  if (has_no_place(errno)) return no_place(attribute);
  return sys_error(errno, fmt::format("setting the attribute {}", attribute));
}

}  // namespace

Result<uint64_t> LinuxFile::note() const {
  std::array<le64, 1> words = {};
  BRAID_CHECK(get(fd(), kNote, words));
  return uint64_t{words[0]};
}

Status LinuxFile::set_note(uint64_t note) {
  const std::array<le64, 1> words = {note};
  BRAID_TRY(const Fd apart, open_apart());
  BRAID_CHECK(set(fd(), kNote, words));
  if (::fsync(apart.fd()) != 0) return sys_error(errno, "making an attribute durable");
  return {};
}

Result<base::File::Mark> LinuxFile::mark() const {
  std::array<le64, 2> words = {};
  BRAID_CHECK(get(fd(), kMark, words));
  return Mark{words[0], words[1]};
}

Status LinuxFile::set_mark(const Mark& mark) {
  const std::array<le64, 2> words = {mark[0], mark[1]};
  return set(fd(), kMark, words);
}

}  // namespace braid::base
