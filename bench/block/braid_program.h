// Programs of Braid's as sides of the block rows: as a user starts them, with what they say when
// they are ready.
//
// Main thread.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/process.h"
#include "bench/rounds.h"

namespace braid::bench {

/// The folder of this build's programs: $BRAID_BIN_DIR, as tests have it, else this program's.
/// Libraries lie beside it, in lib/.
std::filesystem::path program_folder();
/// Where the `braid` of this build lies, or another program. Empty if it is not there.
std::string braid_program(const std::string& name = "braid");

/// The last JSON object in what a program printed, behind lines of its log. Null: none that is
/// whole yet.
nlohmann::json last_object(const std::string& text);

/// `braid ARGUMENTS --json`, or braidd, running, and the JSON object that it printed when it was
/// ready.
struct BraidProgram {
  Process process;
  nlohmann::json ready;
};
/// kNotFound: it was not built; kIo: it told an error; kTimedOut with its last lines.
base::Result<BraidProgram> start_braid(Bench& bench, std::vector<int> cpus,
                                       std::vector<std::string> arguments,
                                       const std::string& name = "braid");

}  // namespace braid::bench
