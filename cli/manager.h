// What a service manager (systemd) is told of a daemon that it runs: that it is ready, what it
// does, that it ends, and, as often as it asks for, that its reactors still run. By datagrams to
// the socket that the manager names in the environment (sd_notify(3)); no library of its is linked.
//
// Threads: any; a message is one system call that does not wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/result.h"
#include "cli/control_socket.h"
#include "cli/node.h"

namespace braid::cli {

class Manager {
 public:
  /// By $NOTIFY_SOCKET, "/PATH" or "@ABSTRACT", which is taken out of the environment. Without it a
  /// Manager that tells nobody. kInvalid: it is no address of a socket.
  static base::Result<std::unique_ptr<Manager>> of_environment();
  /// `socket`: empty: none.
  static base::Result<std::unique_ptr<Manager>> at(const std::string& socket);

  bool there() const { return fd_.get() >= 0; }
  /// Lines such as "READY=1". A manager that does not take them is not waited for: what was not
  /// taken is an error.
  base::Status tell(const std::string& lines) const;

 private:
  Manager(Fd fd, ControlAddress address) : fd_(std::move(fd)), address_(address) {}
  const Fd fd_;
  const ControlAddress address_;
};

/// How often the manager wants to hear of this process, from $WATCHDOG_USEC and $WATCHDOG_PID; 0:
/// never. kInvalid: no number.
base::Result<uint64_t> watchdog_interval_ns(const char* usec, const char* pid, int own_pid);

/// Tells the manager four times in each interval that the node's reactors run, as long as they do.
/// Ends when it is destroyed, before the node is.
class Watchdog {
 public:
  Watchdog(Node& node, const Manager& manager, uint64_t interval_ns);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  /// Outlives the watchdog while a reactor has not answered.
  struct Answers {
    std::mutex mutex;
    std::condition_variable changed;
    bool waiting = false;  // for the reactors
    bool over = false;
  };
  void run(Node& node, const Manager& manager, uint64_t interval_ns);
  const std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();
  std::thread thread_;
};

}  // namespace braid::cli
