#include "bench/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/machine.h"

namespace braid::bench {
namespace {

using Clock = std::chrono::steady_clock;

// What every child does first. The parent may have died before the request took effect.
void begin_child(const Interrupts& interrupts, pid_t parent, std::span<const int> cpus) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  interrupts.restore_in_child();
  pin_to(cpus);
}

[[noreturn]] void become(const Command& command) {
  const int out = open(command.output_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int in = open("/dev/null", O_RDONLY);
  if (out < 0 || in < 0) _exit(127);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  closefrom(STDERR_FILENO + 1);
  for (const std::string& setting : command.environment) {
    const size_t equals = setting.find('=');
    setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  dprintf(STDERR_FILENO, "cannot run %s: %m\n", arguments.front());
  _exit(127);
}

[[noreturn]] void run_body(const std::function<void(Channel&)>& body, int fd) {
  Channel channel(fd);
  try {
    body(channel);
  } catch (const std::exception& e) {
    channel.send({{"error", e.what()}});
  }
  // No destructors and no exit handlers of the parent's copy.
  _exit(0);
}

// Not through <sys/pidfd.h>: glibc 2.36 declares it there as a C++ function.
int open_pid(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

std::string end_text(int status) {
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

uint64_t to_ns(const timeval& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(time.tv_usec) * 1'000;
}

}  // namespace

ScratchFolder::ScratchFolder() {
  const std::filesystem::path pattern =
      std::filesystem::temp_directory_path() / "braid-bench.XXXXXX";
  folder_ = pattern.string();
  BRAID_ASSERT(mkdtemp(folder_.data()) != nullptr);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* const path = getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = folder + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

void Channel::send(const nlohmann::json& message) const {
  const std::string line = message.dump() + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);
    done += static_cast<size_t>(n);
  }
}

base::Result<Process> Process::run(const Interrupts& interrupts, const Command& command) {
  if (find_program(command.arguments.front()).empty()) {
    return base::make_error(base::Errc::kNotFound, "{}: not installed", command.arguments.front());
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return base::sys_error(errno, "fork");
  if (pid == 0) {
    begin_child(interrupts, parent, command.cpus);
    become(command);
  }
  return Process(interrupts, pid, open_pid(pid), -1);
}

base::Result<Process> Process::call(const Interrupts& interrupts, int cpu,
                                    std::function<void(Channel&)> body) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return base::sys_error(errno, "pipe");
  fflush(nullptr);  // Else the child would have the parent's unwritten output too.
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return base::sys_error(errno, "fork");
  if (pid == 0) {
    close(fds[0]);
    begin_child(interrupts, parent, {&cpu, 1});
    run_body(body, fds[1]);
  }
  close(fds[1]);
  return Process(interrupts, pid, open_pid(pid), fds[0]);
}

Process::Process(Process&& other) noexcept
    : interrupts_(other.interrupts_),
      pid_(std::exchange(other.pid_, -1)),
      process_fd_(std::exchange(other.process_fd_, -1)),
      channel_fd_(std::exchange(other.channel_fd_, -1)),
      cpu_ns_(other.cpu_ns_),
      received_(std::move(other.received_)) {}

Process& Process::operator=(Process&& other) noexcept {
  if (this == &other) return *this;
  end();
  interrupts_ = other.interrupts_;
  pid_ = std::exchange(other.pid_, -1);
  process_fd_ = std::exchange(other.process_fd_, -1);
  channel_fd_ = std::exchange(other.channel_fd_, -1);
  cpu_ns_ = other.cpu_ns_;
  received_ = std::move(other.received_);
  return *this;
}

Process::~Process() {
  end();
}

void Process::end() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (process_fd_ >= 0) close(process_fd_);
  if (channel_fd_ >= 0) close(channel_fd_);
  pid_ = process_fd_ = channel_fd_ = -1;
}

base::Status Process::wait_readable(int fd, int timeout_ms) const {
  pollfd waits[2] = {{.fd = fd, .events = POLLIN, .revents = 0},
                     {.fd = interrupts_->fd(), .events = POLLIN, .revents = 0}};
  const int ready = poll(waits, 2, timeout_ms);
  if (waits[1].revents != 0) return base::make_error(base::Errc::kCanceled, "interrupted");
  if (ready == 0) {
    return base::make_error(base::Errc::kTimedOut, "process {}: nothing within {} ms", pid_,
                            timeout_ms);
  }
  return base::ok_status();
}

base::Result<nlohmann::json> Process::receive(int timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      const std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      auto message = nlohmann::json::parse(line, nullptr, false);
      if (message.is_object() && message.contains("error")) {
        return base::make_error(base::Errc::kIo, "{}", message["error"].get<std::string>());
      }
      return message;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    BRAID_CHECK(wait_readable(channel_fd_, std::max<int>(0, static_cast<int>(left.count()))));
    char buffer[4096];
    const ssize_t n = read(channel_fd_, buffer, sizeof buffer);
    if (n <= 0) {
      BRAID_CHECK(wait(1000));
      return base::make_error(base::Errc::kIo, "the measuring process ended without a result");
    }
    received_.append(buffer, static_cast<size_t>(n));
  }
}

base::Status Process::wait(int timeout_ms) {
  if (pid_ < 0) return base::ok_status();
  BRAID_CHECK(wait_readable(process_fd_, timeout_ms));
  int status = 0;
  const pid_t pid = std::exchange(pid_, -1);
  rusage used{};
  wait4(pid, &status, 0, &used);
  cpu_ns_ = to_ns(used.ru_utime) + to_ns(used.ru_stime);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return base::ok_status();
  return base::make_error(base::Errc::kIo, "process {}: {}", pid, end_text(status));
}

bool Process::running() const {
  pollfd wait{.fd = process_fd_, .events = POLLIN, .revents = 0};
  return pid_ > 0 && poll(&wait, 1, 0) == 0;
}

std::string last_lines(const std::string& file, size_t bytes_max) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  std::string all = text.str();
  while (!all.empty() && all.back() == '\n') all.pop_back();
  return all.size() > bytes_max ? all.substr(all.size() - bytes_max) : all;
}

}  // namespace braid::bench
