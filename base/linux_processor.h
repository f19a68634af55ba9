// Where the kernel runs a thread, for what counts how often it moves one.
#pragma once

namespace braid::base {

/// The number of the processor on which the calling thread runs; it may be another one by the time
/// this returns. No system call where the C library has restartable sequences (glibc 2.35).
unsigned linux_processor();

}  // namespace braid::base
