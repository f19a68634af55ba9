#include "cli/braidd_parts.h"
#include "cli/verbs/program.h"

int main(int argc, char** argv) {
  return braid::cli::run_program(argc, argv, braid::cli::run_braid, braid::cli::parts_by_exec());
}
