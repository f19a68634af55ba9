// Runs a few system calls in a short-lived process apart, for calls that wait for a device that
// this very process serves.
//
// Why not a thread: a thread that waits in the kernel for its own process's FUSE file or nbd socket
// keeps the table of descriptors alive. If the process is killed then, the descriptors that would
// end the wait are never closed, and the process stays for ever. The process apart has a table of
// its own with only the descriptors named; when the server dies, its table goes, and the wait ends
// with an error.
#pragma once

#include <span>

#include "base/result.h"

namespace braid::bnbd {

/// Runs body(argument) and waits for it. Blocks the calling thread: a worker, never a reactor.
/// The process apart shares this one's memory (nothing is copied, so no page of the server becomes
/// copy-on-write) but holds only `keep_fds`, under their numbers, and has every signal blocked. The
/// body may make system calls and use `argument`; no allocation, no locks, no C++ runtime.
base::Status run_apart(void (*body)(void* argument), void* argument, std::span<const int> keep_fds);

/// clone(2) for a process apart, by the C library's other name for it. The thread sanitizer has a
/// clone() of its own, takes this for a fork, and looks at nothing that the caller does from then
/// on.
extern "C" int clone_apart(int (*body)(void*), void* stack, int flags, void* argument, ...) noexcept
    __asm__("__clone");

/// Closes every descriptor but these (ascending). For a process apart: only syscall() of the C
/// library, and no call of an inline function, which may be one that a sanitizer has instrumented.
void close_all_but(const int* keep_fds, size_t count);

}  // namespace braid::bnbd
