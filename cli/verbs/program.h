// What `braid` and `braidd` do around their work.
#pragma once

#include "cli/verbs/verbs.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
class ParseError;
}  // namespace CLI

namespace braid::cli {

/// The work of `braid` and of `braidd`, for run_program(). CLI11 is compiled once, with the verbs,
/// so that their mains do not include it.
int run_braid(Context& context, int argc, char** argv);
int run_braidd(Context& context, int argc, char** argv);

/// Runs the work with its arguments; gives its exit code. `parts`: where the verbs run of which the
/// work is in braidd only. A reader of our output that goes away (`braidd | head`) does not end the
/// process: a daemon has disks to serve. It may open as many descriptors as its hard limit allows.
/// An exception that escapes is told in words, with exit code 1.
int run_program(int argc, char** argv, int (*work)(Context& context, int argc, char** argv),
                const BraiddParts& parts);

/// Tells what is wrong with the arguments, in words or in JSON; gives the exit code.
int refuse_usage(CLI::App& app, Context& context, const CLI::ParseError& wrong);

}  // namespace braid::cli
