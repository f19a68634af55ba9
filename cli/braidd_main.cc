#include "cli/verbs/program.h"

int main(int argc, char** argv) {
  return braid::cli::run_program(argc, argv, braid::cli::run_braidd);
}
