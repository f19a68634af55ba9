// What is done to a file or disk by plain system calls: its size, erasing for good.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/linux/file.h"

namespace braid::base {

Result<uint64_t> LinuxFile::current_size() const {
  struct stat what;
  if (::fstat(fd(), &what) != 0) return sys_error(errno, "cannot ask a file for its size");
  if (!S_ISBLK(what.st_mode)) return static_cast<uint64_t>(what.st_size);
  uint64_t size_bytes = 0;
  if (::ioctl(fd(), BLKGETSIZE64, &size_bytes) != 0) {
    return sys_error(errno, "cannot ask a disk for its size");
  }
  return size_bytes;
}

Result<Fd> LinuxFile::open_apart() const {
  Fd apart = open_anew(fd_, O_RDONLY);
  if (!apart.valid()) return sys_error(errno, "opening a file once more");
  return apart;
}

/// The descriptor decides what kind of file it is, as `info_` is the reactor's.
Status LinuxFile::set_size(uint64_t size_bytes) {
  struct stat what;
  if (::fstat(fd(), &what) != 0) return sys_error(errno, "cannot examine an open file");
  if (!S_ISREG(what.st_mode)) {
    return make_error(Errc::kNotSupported,
                      "a disk gets another size by its own means (lvresize, its controller); Braid "
                      "notices");
  }
  BRAID_TRY(const Fd apart, open_apart());
  if (::ftruncate(fd(), static_cast<off_t>(size_bytes)) != 0) {
    return sys_error(errno, fmt::format("cannot give a file {} bytes", size_bytes));
  }
  if (::fsync(apart.fd()) != 0) return sys_error(errno, "making a file's size durable");
  return {};
}

Status LinuxFile::secure_erase(uint64_t offset_bytes, uint64_t length_bytes) {
  uint64_t range[] = {offset_bytes, length_bytes};
  if (::ioctl(fd(), BLKSECDISCARD, range) == 0) return {};
  if (errno == ENOTTY || errno == EOPNOTSUPP) {
    return make_error(Errc::kNotSupported, "what is written there cannot be erased for good");
  }
  return sys_error(errno, "erasing a range of a disk for good");
}

}  // namespace braid::base
