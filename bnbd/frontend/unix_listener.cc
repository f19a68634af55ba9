#include "bnbd/frontend/unix_listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace braid::bnbd {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

constexpr int kUnixBacklog = 64;
constexpr int kLockRetryMs = 10;

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return make_error(Errc::kInvalid, "socket \"{}\": a path of {} bytes; it must have 1 to {}",
                      path, path.size(), sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

const sockaddr* raw(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

/// Held while one looks whether a socket is alive and takes its place: of two that come at once
/// one would remove the other's. The lock is on the folder, so nothing of it stays. Ours is held
/// for a moment; but whoever can read the folder can lock it, and keep it so.
Result<UniqueFd> lock_folder(const std::string& path, uint64_t patience_ns) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return base::sys_error(errno, "the folder of socket \"" + path + "\"");
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(patience_ns);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return base::sys_error(errno, "lock the folder of socket \"" + path + "\"");
    }
    if (std::chrono::steady_clock::now() >= end) {
      return make_error(Errc::kBusy,
                        "socket \"{}\": another program holds a lock on its folder \"{}\" (lslocks "
                        "tells which): end that, or take a folder that nobody locks",
                        path, folder);
    }
    (void)::poll(nullptr, 0, kLockRetryMs);
  }
  return fd;
}

/// Removes the socket that a dead process has left.
Status make_way(const std::string& path, const sockaddr_un& address) {
  struct stat found = {};
  if (::lstat(path.c_str(), &found) != 0) return {};
  if (!S_ISSOCK(found.st_mode)) {
    return make_error(Errc::kInvalid, "\"{}\" is there, and is no socket: it is left alone", path);
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return base::sys_error(errno, "make a socket");
  // EAGAIN: alive, with a full backlog.
  if (::connect(probe.get(), raw(address), sizeof(address)) == 0 || errno == EAGAIN) {
    return make_error(Errc::kBusy, "somebody serves at socket \"{}\" already", path);
  }
  if (errno != ECONNREFUSED) return base::sys_error(errno, "look at socket \"" + path + "\"");
  if (::unlink(path.c_str()) != 0) {
    return base::sys_error(errno, "remove the socket \"" + path + "\" of a dead server");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<UnixListener>> UnixListener::listen(const std::string& path,
                                                           uint64_t lock_patience_ns) {
  BRAID_TRY(const sockaddr_un address, address_of(path));
  BRAID_TRY(const UniqueFd lock, lock_folder(path, lock_patience_ns));
  BRAID_CHECK(make_way(path, address));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return base::sys_error(errno, "make a socket");
  struct stat made = {};
  if (::bind(socket.get(), raw(address), sizeof(address)) != 0 ||
      ::lstat(path.c_str(), &made) != 0 || ::listen(socket.get(), kUnixBacklog) != 0) {
    return base::sys_error(errno, "listen at socket \"" + path + "\"");
  }
  return std::unique_ptr<UnixListener>(
      new UnixListener(path, std::move(socket), made.st_dev, made.st_ino));
}

UnixListener::~UnixListener() {
  struct stat found = {};
  if (::lstat(path_.c_str(), &found) != 0) return;
  if (found.st_dev == device_ && found.st_ino == inode_) (void)::unlink(path_.c_str());
}

}  // namespace braid::bnbd
