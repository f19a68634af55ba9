// What the tests of LinuxHost share: a host without output, a forked child.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "base/linux_host.h"
#include "base/linux_test_folder.h"
#include "base/reactor.h"

namespace braid::base {

inline std::unique_ptr<Host> quiet_linux_host() {
  LinuxHostOptions options;
  options.log_sink = make_null_sink();
  options.allow_peer_copy = true;  // children copy to and from their parents
  return std::move(create_linux_host(options)).value();
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

/// Runs `body` in a forked process; gives its exit status. While this process has threads the body
/// must not start any, and so have no host that does file work.
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
