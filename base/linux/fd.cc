#include "base/linux/fd.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/linux_host.h"

namespace braid::base {
namespace {

constexpr rlim_t kDescriptorRoomMax = 16384;

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::unique_ptr<Handle>> Fd::duplicate() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return sys_error(errno, fmt::format("cannot duplicate descriptor {}", fd_));
  return std::unique_ptr<Handle>(std::make_unique<Fd>(copy));
}

Fd open_anew(const Handle& of, int flags) {
  const std::string link = fmt::format("/proc/self/fd/{}", of.fd());
  return Fd(retry_interrupted([&] { return ::open(link.c_str(), flags | O_CLOEXEC); }));
}

void raise_descriptor_limit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  [[maybe_unused]] const int failed = ::setrlimit(RLIMIT_NOFILE, &limit);
}

void make_room_for_descriptors() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto room = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kDescriptorRoomMax));
  const Fd any(::open("/", O_PATH | O_CLOEXEC));
  if (!any.valid() || room == 0) return;
  const Fd last(::fcntl(any.fd(), F_DUPFD_CLOEXEC, room - 1));  // no room: as it was
}

std::string read_small_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  std::array<char, 4096> buffer;
  const ssize_t got =
      retry_interrupted([&] { return ::read(file.fd(), buffer.data(), buffer.size()); });
  if (got <= 0) return {};
  std::string text(buffer.data(), static_cast<size_t>(got));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

const std::string& boot_id() {
  static const std::string kBootId = read_small_file("/proc/sys/kernel/random/boot_id");
  return kBootId;
}

}  // namespace braid::base
