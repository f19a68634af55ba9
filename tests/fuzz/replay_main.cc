// Runs a fuzz target once over every file of the folders and files given, without libFuzzer, so
// that each corpus is checked by any compiler in the ordinary test run. What is named must be there
// with at least one input. Without a name, only the empty input runs. The inputs of a folder are a
// corpus: together they must reach every state that the target declares (reached.h).

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/reached.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes);

namespace {

void run_one(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
  std::printf("%s: %zu bytes\n", path.c_str(), input.size());
  std::fflush(stdout);  // The last line names the input that crashed.
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

/// The number of inputs.
std::size_t run_all(const std::filesystem::path& path) {
  std::size_t inputs = 0;
  if (std::filesystem::is_regular_file(path)) {
    run_one(path);
    ++inputs;
  } else if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (!entry.is_regular_file()) continue;
      run_one(entry.path());
      ++inputs;
    }
  }
  return inputs;
}

/// False: some state is not reached, or none is declared.
bool all_reached() {
  using braid::fuzz::Reached;
  bool all = Reached::first() != nullptr;
  if (!all) std::fprintf(stderr, "the target says no state that its corpus must reach\n");
  for (const Reached* state = Reached::first(); state != nullptr; state = state->next()) {
    std::printf("reached \"%s\": %llu times\n", state->name().c_str(),
                static_cast<unsigned long long>(state->times()));
    if (state->times() > 0) continue;
    std::fprintf(stderr, "no input of the corpus reaches \"%s\"\n", state->name().c_str());
    all = false;
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint8_t none = 0;
  LLVMFuzzerTestOneInput(&none, 0);
  bool corpus = false;
  for (int i = 1; i < argc; ++i) {
    corpus = corpus || std::filesystem::is_directory(argv[i]);
    if (run_all(argv[i]) > 0) continue;
    std::fprintf(stderr, "%s: no inputs there; a target that was renamed takes its corpus along\n",
                 argv[i]);
    return 1;
  }
  return corpus && !all_reached() ? 1 : 0;
}
