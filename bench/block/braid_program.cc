#include "bench/block/braid_program.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace braid::bench {
namespace {

constexpr int kStartMs = 60'000;
constexpr int kLookMs = 5;

}  // namespace

std::filesystem::path program_folder() {
  if (const char* folder = std::getenv("BRAID_BIN_DIR")) return folder;
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

std::string braid_program(const std::string& name) {
  std::error_code error;
  const auto program = program_folder() / name;
  return std::filesystem::exists(program, error) ? program.string() : std::string();
}

nlohmann::json last_object(const std::string& text) {
  const size_t end = text.rfind("\n}");
  if (end == std::string::npos) return nullptr;
  const size_t line = text.rfind("\n{", end);
  const size_t begin = line == std::string::npos ? 0 : line + 1;
  auto object = nlohmann::json::parse(text.substr(begin, end + 2 - begin), nullptr, false);
  return object.is_object() ? object : nlohmann::json();
}

base::Result<BraidProgram> start_braid(Bench& bench, std::vector<int> cpus,
                                       std::vector<std::string> arguments,
                                       const std::string& name) {
  const std::string program = braid_program(name);
  if (program.empty()) return base::make_error(base::Errc::kNotFound, "{}: not built", name);
  const std::string output = bench.scratch.path(name + "-" + arguments.front() + ".out");
  Command command{.arguments = {program}, .cpus = std::move(cpus), .output_file = output};
  command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
  command.arguments.emplace_back("--json");
  std::filesystem::remove(output);
  BRAID_TRY(Process process, Process::run(bench.interrupts, command));
  for (int waited_ms = 0;; waited_ms += kLookMs) {
    std::ifstream in(output);
    std::ostringstream text;
    text << in.rdbuf();
    nlohmann::json ready = last_object(text.str());
    if (ready.contains("error"))
      return base::make_error(base::Errc::kIo, "{} {}: {}", name, arguments.front(),
                              ready.at("error").dump());
    if (!ready.is_null()) return BraidProgram{std::move(process), std::move(ready)};
    if (waited_ms >= kStartMs || !process.running()) {
      return base::make_error(base::Errc::kTimedOut, "{} {} is not ready: {}", name,
                              arguments.front(), last_lines(output));
    }
    BRAID_CHECK(bench.interrupts.pause_ms(kLookMs));
  }
}

}  // namespace braid::bench
