#include "reach/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace braid::reach {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

/// Owns a descriptor.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

/// Text with secrets in it; wiped when it goes.
struct SecretText {
  std::string text;
  SecretText() = default;
  ~SecretText() { ::explicit_bzero(text.data(), text.size()); }
  SecretText(const SecretText&) = delete;
  SecretText& operator=(const SecretText&) = delete;
};

Status check_file(const std::string& path, const struct stat& found) {
  if (!S_ISREG(found.st_mode))
    return make_error(Errc::kInvalid, "key file \"{}\" is no regular file", path);
  if (found.st_uid != 0 && found.st_uid != ::geteuid())
    return make_error(
        Errc::kPermission,
        "key file \"{}\" belongs to user {}: it must be this process's ({}) or root's", path,
        found.st_uid, ::geteuid());
  if ((found.st_mode & 077) != 0)
    return make_error(Errc::kPermission,
                      "key file \"{}\" has mode {:04o}: others may read or change it; mode 0600 is "
                      "right (chmod 600)",
                      path, found.st_mode & 07777);
  if (found.st_size > static_cast<off_t>(trs::kKeysTextBytesMax))
    return make_error(Errc::kInvalid, "key file \"{}\" has {} bytes; at most {} are right", path,
                      found.st_size, trs::kKeysTextBytesMax);
  return {};
}

Status read_all(const std::string& path, SecretText& into) {
  // A FIFO must not hold us up.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return base::sys_error(errno, fmt::format("key file \"{}\"", path));
  struct stat found {};
  if (::fstat(file.get(), &found) != 0)
    return base::sys_error(errno, fmt::format("key file \"{}\"", path));
  BRAID_CHECK(check_file(path, found));
  // Never moved while it grows: what is left behind would not be wiped.
  into.text.resize(trs::kKeysTextBytesMax + 1);
  size_t length = 0;
  while (length < into.text.size()) {
    const ssize_t n = ::read(file.get(), into.text.data() + length, into.text.size() - length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return base::sys_error(errno, fmt::format("reading key file \"{}\"", path));
    if (n == 0) break;
    length += static_cast<size_t>(n);
  }
  into.text.resize(length);
  return {};
}

}  // namespace

Result<std::shared_ptr<const trs::KeyRing>> read_keys(const std::string& path) {
  SecretText text;
  BRAID_CHECK(read_all(path, text));
  auto keys = trs::parse_keys(text.text);
  if (!keys.ok()) return keys.error().with("key file \"{}\"", path);
  return keys;
}

Result<trs::KeyPtr> read_key(const std::string& path) {
  BRAID_TRY(const auto keys, read_keys(path));
  const std::vector<std::string> names = keys->names();
  if (names.size() == 1) return keys->find(names.front());
  return make_error(Errc::kInvalid,
                    "key file \"{}\" has {} keys: a client has one (a server's file is another)",
                    path, names.size());
}

Status write_key(const std::string& path, const trs::Key& key) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) {
    const int err = errno;
    if (err == EEXIST)
      return make_error(Errc::kExists, "\"{}\" is there already, and is left as it is", path);
    return base::sys_error(err, fmt::format("key file \"{}\"", path));
  }
  SecretText line;
  line.text = key.line() + "\n";
  size_t written = 0;
  while (written < line.text.size()) {
    const ssize_t n = ::write(file.get(), line.text.data() + written, line.text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return base::sys_error(errno, fmt::format("writing key file \"{}\"", path));
    written += static_cast<size_t>(n);
  }
  if (::fsync(file.get()) != 0)
    return base::sys_error(errno, fmt::format("writing key file \"{}\"", path));
  return {};
}

}  // namespace braid::reach
