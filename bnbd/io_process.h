// What a process behind a kernel device does for itself before it starts: when memory is short, the
// kernel frees it by writing to the device, so the server must get on without new memory.
//
// docs/front-ends.md gives the deadlocks that each step prevents.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace braid::bnbd {

/// One measure, and whether it took.
struct IoProcessStep {
  std::string name;  // "locked memory"
  bool done = false;
  std::string detail;  // for people: what was achieved, or what refused and what would help
};

struct IoProcessOptions {
  /// Heap that is locked in advance: what libraries allocate per request comes from here.
  size_t heap_bytes = size_t{32} << 20;
};

/// Takes the measures: PR_SET_IO_FLUSHER, one prefaulted heap that never shrinks, locked memory now
/// and in future, protection from the OOM killer, no core dumps. Call first in main, before any
/// thread starts: threads inherit the I/O flusher flag from the one that makes them. Never fails as
/// a whole: a process without the privilege still serves, and `braid show` prints what is missing.
std::vector<IoProcessStep> become_io_process(const IoProcessOptions& options = {});

/// Has all of the calling thread's stack there from now on: locked memory alone comes with its
/// first use. For reactors' threads, before they serve; not for the main thread, whose stack grows.
void prefault_stack();

}  // namespace braid::bnbd
