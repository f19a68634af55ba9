// What the tests of LinuxHost share: a host without output, a scratch folder, a forked child.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "base/linux_host.h"
#include "base/reactor.h"

namespace braid::base {

inline std::unique_ptr<Host> quiet_linux_host() {
  LinuxHostOptions options;
  options.log_sink = make_null_sink();
  options.allow_peer_copy = true;  // children copy to and from their parents
  return std::move(create_linux_host(options)).value();
}

/// A name that no other test or process uses at the same time.
inline std::string unique_name(const std::string& what) {
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  return what + "-" + std::to_string(::getpid()) + "-" + (test != nullptr ? test->name() : "");
}

/// Runs one file operation to its end.
inline Errc run_io(Reactor& reactor, IoOp& op) {
  std::optional<Errc> result;
  op.context = &result;
  op.done = [](IoOp& o, Errc status) { *static_cast<std::optional<Errc>*>(o.context) = status; };
  reactor.io().submit(op);
  while (!result) {
    reactor.turn();
    if (!result) reactor.io().wait(kNever);
  }
  return *result;
}

/// A folder that goes with the object.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& beneath = testing::TempDir())
      : path_(beneath + "/" + unique_name("braid")) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void make_file(const std::string& name, size_t size_bytes) const {
    std::ofstream(*this / name).close();
    std::filesystem::resize_file(*this / name, size_bytes);
  }

 private:
  const std::string path_;
};

/// Runs `body` in a forked process; gives its exit status. The body must not start threads.
template <typename Body>
pid_t fork_child(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  return pid;
}
inline int exit_status(pid_t pid) {
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace braid::base
