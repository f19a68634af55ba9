#include "base/linux/event.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/linux/fd.h"

namespace braid::base {
namespace {

class LinuxEvent : public Event {
 public:
  explicit LinuxEvent(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}

  void signal() override {
    // Fails only when the counter is at its limit (EAGAIN), and then it is set already.
    const uint64_t one = 1;
    (void)retry_interrupted([&] { return ::write(handle_->fd(), &one, sizeof one); });
  }

  bool consume() override {
    uint64_t count = 0;
    return retry_interrupted([&] { return ::read(handle_->fd(), &count, sizeof count); }) ==
           sizeof count;
  }

  const Handle& handle() const override { return *handle_; }

 private:
  const std::unique_ptr<Handle> handle_;
};

}  // namespace

Result<std::unique_ptr<Event>> create_linux_event() {
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) return sys_error(errno, "cannot create an eventfd");
  return std::unique_ptr<Event>(std::make_unique<LinuxEvent>(std::make_unique<Fd>(fd)));
}

Result<std::unique_ptr<Event>> adopt_linux_event(std::unique_ptr<Handle> handle) {
  const std::string link = fmt::format("/proc/self/fd/{}", handle->fd());
  std::array<char, 64> target;
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  const std::string_view kind(target.data(), length > 0 ? static_cast<size_t>(length) : 0);
  if (kind != "anon_inode:[eventfd]") {
    return make_error(Errc::kProtocol, "descriptor {} is \"{}\", not an eventfd", handle->fd(),
                      kind);
  }
  const int flags = ::fcntl(handle->fd(), F_GETFL);
  if (flags < 0 || (flags & O_NONBLOCK) == 0) {
    return make_error(Errc::kProtocol, "eventfd {} may block; it must be non-blocking",
                      handle->fd());
  }
  return std::unique_ptr<Event>(std::make_unique<LinuxEvent>(std::move(handle)));
}

}  // namespace braid::base
