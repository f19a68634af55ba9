// Looks at each instruction that a process executes between two marks: what it takes of the kernel,
// of locks and of the heap, exactly, in whatever build.
//
// x86-64 Linux, and ptrace must be allowed. Main thread, of a process without others.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"

namespace braid::bench {

struct Steps {
  uint64_t instructions = 0;
  uint64_t system_calls = 0;
  uint64_t locked = 0;       // instructions that lock the bus or a cache line: each atomic change
  uint64_t mutexes = 0;      // taken
  uint64_t allocations = 0;  // of the heap
  uint64_t result = 0;       // what the work told
};

/// The work of a child process, which calls `mark` at the begin and the end of what is counted, and
/// returns a number to tell. Only the thread that calls it is looked at, and meanwhile the clock of
/// that process stands still. kNotSupported: not here.
base::Result<Steps> count_steps(const std::function<uint64_t(void (*mark)())>& work);

/// In such work, before the first mark: the clock stands still from now on, until the last mark. So
/// what is due now can be done before anything is counted, and nothing else becomes due.
void stop_clock();

}  // namespace braid::bench
