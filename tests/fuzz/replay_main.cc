// Runs a fuzz target once over every file of the folders and files given, without libFuzzer, so
// that each corpus is checked by any compiler in the ordinary test run. No folder, or an empty one,
// still runs the empty input.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes);

namespace {

void replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
  std::printf("%s: %zu bytes\n", path.c_str(), input.size());
  std::fflush(stdout);  // The last line names the input that crashed.
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint8_t none = 0;
  LLVMFuzzerTestOneInput(&none, 0);
  for (int i = 1; i < argc; ++i) {
    const std::filesystem::path path = argv[i];
    if (std::filesystem::is_directory(path)) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
        if (entry.is_regular_file()) replay(entry.path());
      }
    } else if (std::filesystem::exists(path)) {
      replay(path);
    }
  }
  return 0;
}
