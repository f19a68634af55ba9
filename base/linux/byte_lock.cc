#include "base/byte_lock.h"

#include <fcntl.h>

#include <cerrno>

#include "base/linux/fd.h"

namespace braid::base {

Result<std::unique_ptr<Handle>> lock_bytes(const Handle& of, uint64_t offset, uint64_t length) {
  // A lock is an open file's, and a descriptor that was passed on or inherited is the same open
  // file: each lock opens its own.
  auto own = std::make_unique<Fd>(open_anew(of, O_RDWR));
  if (!own->valid()) return sys_error(errno, fmt::format("cannot open {} anew", of.fd()));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset);
  lock.l_len = static_cast<off_t>(length);
  if (retry_interrupted([&] { return ::fcntl(own->fd(), F_OFD_SETLK, &lock); }) == 0) {
    return std::unique_ptr<Handle>(std::move(own));
  }
  if (errno == EAGAIN || errno == EACCES) {
    return make_error(Errc::kBusy, "somebody else has locked {} bytes at {:#x}", length, offset);
  }
  if (errno == ENOLCK) return make_error(Errc::kNoMemory, "no memory for a lock");
  return sys_error(errno, fmt::format("cannot lock {} bytes at {:#x}", length, offset));
}

}  // namespace braid::base
