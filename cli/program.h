// What `braid` and `braidd` do around their work.
#pragma once

#include "cli/verbs/verbs.h"

namespace braid::cli {

/// Runs the work with its arguments; gives its exit code. A reader of our output that goes away
/// (`braidd | head`) does not end the process: a daemon has disks to serve. An exception that
/// escapes is told in words, with exit code 1.
int run_program(int argc, char** argv, int (*work)(Context& context, int argc, char** argv));

}  // namespace braid::cli
