#include <sys/prctl.h>

#include <string_view>

#include "cli/braidd_parts.h"
#include "cli/verbs/program.h"

// Called "braid" it is what `braid` becomes for the verbs that are a node.
int main(int argc, char** argv) {
  using namespace braid::cli;
  const bool for_braid = argc > 0 && std::string_view(argv[0]) == "braid";
  if (for_braid) ::prctl(PR_SET_NAME, "braid");  // for ps and pkill
  return run_program(argc, argv, for_braid ? run_braid : run_braidd, parts_here());
}
