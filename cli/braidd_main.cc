#include <sys/prctl.h>

#include "cli/braidd_parts.h"
#include "cli/verbs/program.h"

// The daemon; or what `braid` becomes for the verbs of which the work is here.
int main(int argc, char** argv) {
  using namespace braid::cli;
  const bool for_braid = argc > 0 && argv[0] == kCalledForBraid;
  if (for_braid) ::prctl(PR_SET_NAME, kCalledForBraid.data());  // for ps and pkill
  return run_program(argc, argv, for_braid ? run_braid : run_braidd, parts_in_this_process());
}
