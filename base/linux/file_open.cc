// open_beneath: from a name given by a peer or a person to an open file beneath the root, and
// nothing else.
//
// The name is resolved once, by the kernel (openat2), to an O_PATH descriptor, which has no side
// effect on what it names: a FIFO does not block, a tape does not rewind. What it is decides
// whether that very inode is opened, through /proc/self/fd; the name is not looked at again.
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/linux/file.h"

namespace braid::base {
namespace {

constexpr size_t kNameBytesMax = 255;
constexpr int kResolveTriesMax = 64;

Status check_name(const std::string& name) {
  const auto refuse = [&](std::string_view rule) {
    return make_error(Errc::kInvalid, "export name \"{}\" {}", name, rule);
  };
  if (name.empty()) return make_error(Errc::kInvalid, "the export name is empty");
  if (name.size() > kNameBytesMax) {
    return make_error(Errc::kInvalid, "export name \"{}...\" has {} bytes; at most {} are allowed",
                      name.substr(0, 32), name.size(), kNameBytesMax);
  }
  if (name.find('\0') != std::string::npos) {
    return make_error(Errc::kInvalid, "export name \"{}\" goes on behind a zero byte",
                      name.c_str());
  }
  if (name.front() == '/') return refuse("is absolute; names are relative to the export root");
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    if (name.compare(at, end - at, "..") == 0) return refuse("has a \"..\" in it");
    at = end + 1;
  }
  return {};
}

/// The words may reach a remote client, who is not told where the root lies.
Error resolve_error(int sys_errno, const std::string& name, const OpenOptions& options) {
  switch (sys_errno) {
    case ENOENT:
      return make_error(Errc::kNotFound, "there is no \"{}\" beneath the export root", name);
    case ENOTDIR:
      return make_error(Errc::kNotFound, "a part of \"{}\" is not a directory", name);
    case EXDEV:
      return make_error(Errc::kPermission, "\"{}\" leads out of the export root by a link", name);
    case ELOOP:
      return options.follow_links_beneath
                 ? make_error(Errc::kPermission,
                              "\"{}\" leads through a circle of links or a magic link", name)
                 : make_error(Errc::kPermission,
                              "\"{}\" is or leads through a link, and links are not followed",
                              name);
    case EACCES:
      return make_error(Errc::kPermission, "the server has no permission to reach \"{}\"", name);
    case EAGAIN:
      return make_error(Errc::kBusy, "\"{}\" is being renamed all the time; try again", name);
    default:
      return sys_error(sys_errno, fmt::format("cannot reach \"{}\"", name));
  }
}

Result<Fd> resolve_beneath(const std::string& root, const std::string& name,
                           const OpenOptions& options, const OwnDisks& own_disks) {
  const Fd directory(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return sys_error(errno, "cannot use the export root");
  // Before the name is looked up, which may read the disk.
  BRAID_CHECK(own_disks.check(directory.fd(), name));
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  if (!options.follow_links_beneath) how.resolve |= RESOLVE_NO_SYMLINKS;
  for (int tries = 0;; ++tries) {
    const long fd = ::syscall(SYS_openat2, directory.fd(), name.c_str(), &how, sizeof how);
    if (fd >= 0) return Fd(static_cast<int>(fd));
    // The kernel gives up when a rename elsewhere could have moved what it walked through.
    if (errno != EINTR && (errno != EAGAIN || tries >= kResolveTriesMax)) {
      return resolve_error(errno, name, options);
    }
  }
}

Status check_type(const struct stat& what, const std::string& name, const OpenOptions& options) {
  const auto refuse = [&](std::string_view kind) {
    return make_error(Errc::kInvalid, "\"{}\" is {}; only regular files{} can be exported", name,
                      kind, options.allow_block_device ? " and block devices" : "");
  };
  switch (what.st_mode & S_IFMT) {
    case S_IFREG:
      return {};
    case S_IFBLK:
      if (options.allow_block_device) return {};
      return make_error(Errc::kPermission,
                        "\"{}\" is a block device; exporting devices is not allowed here", name);
    case S_IFDIR:
      return refuse("a directory");
    case S_IFIFO:
      return refuse("a FIFO");
    case S_IFSOCK:
      return refuse("a socket");
    case S_IFCHR:
      return refuse("a character device");
    default:
      return refuse("of an unknown kind");
  }
}

/// Opens the inode that `path` stands for. O_EXCL on a block device: not while it is mounted or
/// otherwise claimed. Not O_NONBLOCK: on some file systems io_uring would then answer EAGAIN to all
/// that is not in the cache.
Result<Fd> reopen(const Fd& path, bool direct, bool claim, const std::string& name,
                  const OpenOptions& options) {
  Fd file = open_anew(path, (options.read_only ? O_RDONLY : O_RDWR) | (direct ? O_DIRECT : 0) |
                                (claim ? O_EXCL : 0));
  if (file.valid()) return file;
  const std::string_view access = options.read_only ? "read" : "read and write";
  switch (errno) {
    case EACCES:
    case EPERM:
      return make_error(Errc::kPermission, "the server has no permission to {} \"{}\"", access,
                        name);
    case EROFS:
      return make_error(Errc::kReadOnly,
                        "\"{}\" lies on a read-only file system: it can only be opened for reading",
                        name);
    case EBUSY:
      return make_error(Errc::kBusy, "block device \"{}\" is in use (mounted?)", name);
    default:
      return sys_error(errno, fmt::format("cannot open \"{}\"", name));
  }
}

/// The lock belongs to the open file, which operations in flight keep alive.
Status lock_file(const Fd& file, const std::string& name, const OpenOptions& options) {
  const int how = (options.read_only ? LOCK_SH : LOCK_EX) | LOCK_NB;
  if (retry_interrupted([&] { return ::flock(file.fd(), how); }) == 0) return {};
  if (errno != EWOULDBLOCK) return sys_error(errno, fmt::format("cannot lock \"{}\"", name));
  return make_error(
      Errc::kBusy,
      "\"{}\" is locked by another process at the server, or under another of its names", name);
}

}  // namespace

Result<std::unique_ptr<File>> open_linux_file(const std::string& root, const std::string& name,
                                              const OpenOptions& options,
                                              const OwnDisks& own_disks) {
  BRAID_CHECK(check_name(name));
  BRAID_TRY(const Fd path, resolve_beneath(root, name, options, own_disks));
  BRAID_CHECK(own_disks.check(path.fd(), name));
  struct stat what;
  if (::fstat(path.fd(), &what) != 0) return sys_error(errno, fmt::format("examining {}", name));
  BRAID_CHECK(check_type(what, name, options));

  const bool claim = S_ISBLK(what.st_mode) && !options.read_only;
  const DirectAlignment alignment = direct_alignment(path.fd());
  bool direct = options.direct && (!alignment.known || alignment.bytes != 0);
  Result<Fd> file = reopen(path, direct, claim, name, options);
  if (!file.ok() && direct && file.code() == Errc::kInvalid) {
    direct = false;  // this file system knows no O_DIRECT
    file = reopen(path, direct, claim, name, options);
  }
  BRAID_TRY(Fd opened, std::move(file));
  if (options.lock) BRAID_CHECK(lock_file(opened, name, options));
  BRAID_TRY(File::Info info, examine_file(opened.fd(), direct, options.read_only));
  return std::unique_ptr<File>(std::make_unique<LinuxFile>(std::move(opened), std::move(info)));
}

}  // namespace braid::base
