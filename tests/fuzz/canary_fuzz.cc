// A target with a known bug, four bytes deep. Fuzzing must find it within seconds: a build whose
// coverage feedback or sanitizers are broken would otherwise look like code without bugs.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const std::string_view call = "tweet";
  const std::vector<std::uint8_t> input(data, data + size_bytes);
  std::size_t matched = 0;
  while (matched < input.size() && matched < call.size() && input[matched] == call[matched]) {
    ++matched;
  }
  if (matched < 4) return 0;
  return input.data()[input.size()] == 0 ? 0 : -1;  // One past the end, for the sanitizer to see.
}
