// A log that its writers never wait for: lines go through a bounded queue to a thread of their own.
//
// A reactor behind a kernel device must not write by itself: a terminal that was stopped, a pipe
// that nobody reads, or a file on that very device would hold up the device for as long.
//
// Threads: write() from any; it copies the line, allocates nothing, takes no lock, and makes at
// most the one system call that wakes the thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/host.h"
#include "base/log.h"

namespace braid::base {

struct LogQueueOptions {
  size_t lines_max = 256;  // in the queue; what comes while it is full is dropped and counted
  /// How long the end of the queue waits for the lines in it to be written. A sink that is stuck
  /// for longer keeps its thread, which is left behind; the lines are lost.
  uint64_t end_patience_ns = 2 * kSecond;
};

/// Longer lines are cut; the cut shows as "...".
inline constexpr size_t kLogLineBytes = 1000;

/// Lines reach `sink` in the order in which they came, with the time at which they came. Where some
/// were dropped, a line says how many.
std::shared_ptr<LogSink> make_queued_sink(std::shared_ptr<LogSink> sink,
                                          const LogQueueOptions& options = {});

}  // namespace braid::base
