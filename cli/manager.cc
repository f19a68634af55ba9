#include "cli/manager.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

/// The whole text as a number.
bool parse_number(std::string_view text, uint64_t& number) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end;
}

}  // namespace

Result<std::unique_ptr<Manager>> Manager::of_environment() {
  const char* const named = std::getenv("NOTIFY_SOCKET");
  const std::string socket = named == nullptr ? "" : named;
  // Programs that we start are not the service.
  ::unsetenv("NOTIFY_SOCKET");
  return at(socket);
}

Result<std::unique_ptr<Manager>> Manager::at(const std::string& socket) {
  ControlAddress to;
  if (socket.empty()) return std::unique_ptr<Manager>(new Manager(Fd(), to));
  const bool abstract = socket[0] == '@';
  if ((!abstract && socket[0] != '/') || socket.size() < 2 ||
      socket.size() >= sizeof to.address.sun_path)
    return make_error(Errc::kInvalid,
                      "NOTIFY_SOCKET \"{}\": want the path of a socket, or '@' and the name of an "
                      "abstract one, of {} characters at most",
                      socket, sizeof to.address.sun_path - 1);
  to.address.sun_family = AF_UNIX;
  std::memcpy(to.address.sun_path, socket.data(), socket.size());
  if (abstract) to.address.sun_path[0] = '\0';
  to.length_bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket.size() + (abstract ? 0 : 1));
  Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return base::sys_error(errno, "a socket to the service manager");
  return std::unique_ptr<Manager>(new Manager(std::move(fd), to));
}

Status Manager::tell(const std::string& lines) const {
  if (!there()) return {};
  const ssize_t sent =
      ::sendto(fd_.get(), lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address_.address), address_.length_bytes);
  if (sent < 0) return base::sys_error(errno, "telling the service manager");
  return {};
}

Result<uint64_t> watchdog_interval_ns(const char* usec, const char* pid, int own_pid) {
  uint64_t number = 0;
  if (usec == nullptr) return uint64_t{0};
  if (pid != nullptr && parse_number(pid, number) && number != static_cast<uint64_t>(own_pid))
    return uint64_t{0};  // it is another process's
  constexpr uint64_t kMost = UINT64_MAX / 1000;
  if (!parse_number(usec, number) || number == 0 || number > kMost)
    return make_error(Errc::kInvalid, "WATCHDOG_USEC \"{}\": want a number of microseconds", usec);
  return number * 1000;
}

Watchdog::Watchdog(Node& node, const Manager& manager, uint64_t interval_ns) {
  if (interval_ns == 0 || !manager.there()) return;
  thread_ = std::thread([this, &node, &manager, interval_ns] { run(node, manager, interval_ns); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(answers_->mutex);
    answers_->over = true;
  }
  answers_->changed.notify_all();
  thread_.join();
}

void Watchdog::run(Node& node, const Manager& manager, uint64_t interval_ns) {
  std::unique_lock lock(answers_->mutex);
  while (!answers_->over) {
    answers_->waiting = true;
    lock.unlock();
    node.look_alive([answers = answers_] {
      {
        const std::lock_guard answered(answers->mutex);
        answers->waiting = false;
      }
      answers->changed.notify_all();
    });
    lock.lock();
    answers_->changed.wait(lock, [this] { return answers_->over || !answers_->waiting; });
    if (answers_->over) return;
    [[maybe_unused]] const bool told = manager.tell("WATCHDOG=1").ok();
    answers_->changed.wait_for(lock, std::chrono::nanoseconds(interval_ns / 4),
                               [this] { return answers_->over; });
  }
}

}  // namespace braid::cli
