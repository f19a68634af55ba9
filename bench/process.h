// Child processes of a measurement: other people's programs, and functions of ours in a process of
// their own. A child never outlives its Process object nor the benchmark program itself.
//
// Main thread, with no other thread running (functions are called after a plain fork).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/interrupts.h"

namespace braid::bench {

/// A folder of its own in the system's folder for temporary files; removed with all that is in it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

/// Where PATH finds a program, or a path itself; empty if it is not there.
std::string find_program(const std::string& name);

/// A program to run.
struct Command {
  std::vector<std::string> arguments;    // the program first
  std::vector<std::string> environment;  // "NAME=value", added to ours
  std::vector<int> cpus;                 // where it may run
  std::string output_file;               // stdout and stderr
};

/// What a called function speaks to its parent by: one JSON value per line.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  /// A parent that is gone ends the process.
  void send(const nlohmann::json& message) const;

 private:
  int fd_;
};

class Process {
 public:
  static base::Result<Process> run(const Interrupts& interrupts, const Command& command);
  /// Calls `body` in a child, pinned to `cpu`, which then ends. What `body` throws or a crash shows
  /// as kIo in receive().
  static base::Result<Process> call(const Interrupts& interrupts, int cpu,
                                    std::function<void(Channel&)> body);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  /// Kills the child if it runs, and waits for its end.
  ~Process();

  /// The next value that a called function sent. kTimedOut; kIo: it ended without one; kCanceled.
  base::Result<nlohmann::json> receive(int timeout_ms);
  /// Waits for the end. kIo with the status unless it ended well; kTimedOut; kCanceled.
  base::Status wait(int timeout_ms);
  bool running() const;
  /// User and system time of a child whose end was waited for, ns; 0 before.
  uint64_t cpu_ns() const { return cpu_ns_; }
  pid_t pid() const { return pid_; }

 private:
  Process(const Interrupts& interrupts, pid_t pid, int process_fd, int channel_fd)
      : interrupts_(&interrupts), pid_(pid), process_fd_(process_fd), channel_fd_(channel_fd) {}
  base::Status wait_readable(int fd, int timeout_ms) const;
  void end();

  const Interrupts* interrupts_;
  pid_t pid_ = -1;       // -1: reaped or moved from
  int process_fd_ = -1;  // pidfd
  int channel_fd_ = -1;  // read end; -1 for a program
  uint64_t cpu_ns_ = 0;
  std::string received_;  // after the last whole line
};

/// The last lines of a file, for error texts.
std::string last_lines(const std::string& file, size_t bytes_max = 400);

}  // namespace braid::bench
