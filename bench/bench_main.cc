// braid-bench: measures Braid beside its peers and writes a table and a JSON file. Linux only.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/linux_host.h"
#include "bench/gate.h"
#include "bench/suite.h"

namespace {

using namespace braid;  // NOLINT: a program's only file

int fail(const base::Error& error) {
  fmt::print(stderr, "braid-bench: {}\n", error.message());
  return error.code() == base::Errc::kCanceled ? 130 : 2;
}

base::Status write_file(const std::string& path, const std::string& text) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  std::ofstream out(path, std::ios::trunc);
  out << text;
  out.close();
  if (!out) return base::make_error(base::Errc::kIo, "{}: cannot be written", path);
  return base::ok_status();
}

base::Result<nlohmann::json> read_document(const std::string& path) {
  std::ifstream in(path);
  if (!in) return base::make_error(base::Errc::kNotFound, "{}: cannot be read", path);
  return nlohmann::json::parse(in, nullptr, false);
}

std::string processor_of(const nlohmann::json& result) {
  return result.at("machine").at("cpu_model").get<std::string>();
}

/// The exit code: 3 if a row is too much worse than recorded.
int hold_against_recorded(const std::string& path, const bench::SuiteResult& result) {
  const auto document = read_document(path);
  if (!document.ok()) return fail(document.error());
  const auto recorded = bench::recorded_from_json(document.value(), processor_of(result.document),
                                                  bench::passes_of(result.document));
  if (!recorded.ok()) return fail(recorded.error().with("{}", path));
  const auto verdicts = bench::hold_against(recorded.value(), result.rows);
  for (const bench::GateVerdict& verdict : verdicts)
    fmt::print("gate: {} {}: {}\n", to_string(verdict.kind), verdict.row, verdict.words);
  const auto count = [&](bench::GateVerdict::Kind kind) {
    return std::count_if(verdicts.begin(), verdicts.end(),
                         [&](const auto& verdict) { return verdict.kind == kind; });
  };
  const auto silent = count(bench::GateVerdict::Kind::kNone);
  fmt::print("gate: {} of {} rows judged\n", verdicts.size() - static_cast<size_t>(silent),
             verdicts.size());
  return count(bench::GateVerdict::Kind::kFailed) > 0 ? 3 : 0;
}

/// Beside what the file has of other kinds of machines.
int record(const std::string& path, const bench::SuiteResult& result) {
  auto mine = bench::record_of(result.rows, bench::passes_of(result.document));
  if (!mine.ok()) return fail(mine.error());
  (*mine)["machine"] = result.document.at("machine");
  nlohmann::json all = {{"machines", nlohmann::json::object()}};
  if (auto document = read_document(path); document.ok()) {
    all = std::move(*document);
    const base::Status others = bench::check_recorded(all);
    if (!others.ok()) return fail(others.error().with("{}", path));
  }
  all["machines"][processor_of(result.document)] = std::move(*mine);
  const base::Status written = write_file(path, all.dump(2) + "\n");
  return written.ok() ? 0 : fail(written.error());
}

/// In the tree the folder of `./run bench`, which is made; else here, as for who installed it.
std::string default_file(const std::string& suite) {
  const std::filesystem::path folder = "build/bench";
  std::error_code error;
  const bool in_tree = std::filesystem::is_directory(folder.parent_path(), error);
  if (in_tree) std::filesystem::create_directory(folder, error);
  return ((in_tree ? folder : ".") / (suite + ".json")).lexically_normal().string();
}

struct Gate {
  std::string recorded_file;  // empty: nothing is compared
  bool record = false;
};

int run(const std::string& suite, const std::string& file, const bench::Options& options,
        const Gate& gate) {
  const bench::Interrupts interrupts;
  const bench::ScratchFolder scratch;
  bench::Bench bench{.interrupts = interrupts,
                     .scratch = scratch,
                     .cpus = bench::choose_cpus(),
                     .options = options,
                     .progress = [](const std::string& line) { fmt::print(stderr, "{}\n", line); }};
  auto result = bench::run_suite(suite, bench);
  if (!result.ok()) return fail(result.error());
  if (options.brief)
    fmt::print("brief: passes and stores that are shorter and smaller than the method's{}\n",
               options.judged ? "" : ": no row is judged");
  fmt::print("{}", bench::table(result.value().rows));
  const base::Status written = write_file(file, result.value().document.dump(2) + "\n");
  if (!written.ok()) return fail(written.error());
  fmt::print(stderr, "written: {}\n", file);
  for (const bench::Row& row : result.value().rows) {
    if (row.verdict == bench::Verdict::kFailed) return 1;
  }
  if (result.value().interrupted) {
    fmt::print(stderr, "braid-bench: interrupted; the rows behind these were not measured\n");
    return 130;
  }
  if (gate.recorded_file.empty()) return 0;
  if (gate.record) return record(gate.recorded_file, result.value());
  return hold_against_recorded(gate.recorded_file, result.value());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures Braid beside its peers on this machine.", "braid-bench"};
  std::string suite, file;
  bench::Options options;
  app.add_option("suite", suite, "block, micro or gate")->required();
  app.add_option("--rounds", options.rounds, "good rounds wanted per row")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_flag("--quick", options.quick, "one short round without a gate: only shows that it runs");
  app.add_option("--minutes", options.minutes,
                 "the longest time for a row, waiting for a quiet machine included")
      ->check(CLI::Range(0.0, 10'000.0))
      ->capture_default_str();
  CLI::Option* const unjudged =
      app.add_option(
             "--unjudged", options.gate.cache_line_max_ns,
             "also count rounds whose cache line takes up to so many ns; then no row is judged")
          ->check(CLI::Range(options.gate.cache_line_max_ns, 10'000.0));
  CLI::Option* const filter =
      app.add_option("--filter", options.filter, "only rows with this in their name");
  Gate gate;
  app.add_flag("--brief", options.brief,
               "runs of a few tenths of a second on smaller stores; judged by the gate alone, "
               "which is to hold "
               "them against others like them");
  app.add_option("--against", gate.recorded_file,
                 "hold each row's ratio to its floor against this file; worse by more than 25 %: "
                 "exit code 3")
      ->excludes(unjudged);
  app.add_flag("--record", gate.record, "write the ratios of all rows to that file instead")
      ->excludes(filter);
  app.add_option("--output", file,
                 "the JSON file (default: SUITE.json, in build/bench if there is one)");
  app.footer(
      "Examples:\n  braid-bench block\n  braid-bench micro --filter reactor --rounds 7 --minutes "
      "30");
  CLI11_PARSE(app, argc, argv);
  // The gate holds brief runs against brief ones.
  options.judged = unjudged->empty() && (!options.brief || suite == "gate");
  if (file.empty()) file = default_file(suite);
  base::raise_descriptor_limit();  // a thousand sessions take some eight thousand
  return run(suite, file, options, gate);
}
