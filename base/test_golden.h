// Golden messages of other implementations, for tests: files of tests/golden, as
// tests/lab/rdma_packets.py writes them. Tests run in the root of the tree. With BRAID_GOLDEN they
// are those of that folder: what the lab has just captured (tests/lab/run kernel_capture).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>  // lint: allow(os) tests read their golden files by themselves
#include <fstream>     // lint: allow(os) the same
#include <optional>
#include <string>
#include <vector>

namespace braid::base {

struct GoldenMessage {
  std::string carried_by;               // "SEND", "WRITE", "REQ", "REP"
  std::optional<uint32_t> imm;          // host order
  std::optional<uint32_t> invalidates;  // the key that a SEND_WITH_INV takes away
  std::vector<std::byte> bytes;
};

inline std::string golden_folder() {
  const char* other = std::getenv("BRAID_GOLDEN");  // lint: allow(os) the lab's, see above
  return std::string(other ? other : "tests/golden") + "/";
}

/// The message of "tests/golden/<name>.hex"; the test fails if it is not there or not whole.
inline GoldenMessage read_golden(const std::string& name) {
  GoldenMessage message;
  const std::string path = golden_folder() + name + ".hex";
  std::ifstream in(path);
  EXPECT_TRUE(in.is_open()) << path << " cannot be opened";
  size_t size = 0;
  for (std::string line; std::getline(in, line);) {
    const size_t space = line.find(' ');
    if (line.starts_with("carried by ")) {
      message.carried_by = line.substr(11);
    } else if (line.starts_with("imm ")) {
      message.imm = static_cast<uint32_t>(std::stoul(line.substr(space), nullptr, 16));
    } else if (line.starts_with("invalidates ")) {
      message.invalidates = static_cast<uint32_t>(std::stoul(line.substr(space), nullptr, 16));
    } else if (line.starts_with("bytes ")) {
      size = std::stoul(line.substr(space));
    } else {
      for (size_t i = 0; i + 1 < line.size(); i += 2) {
        message.bytes.push_back(static_cast<std::byte>(std::stoul(line.substr(i, 2), nullptr, 16)));
      }
    }
  }
  EXPECT_EQ(message.bytes.size(), size) << path;
  return message;
}

/// The messages of "tests/golden/<folder>" with a name, in order: "<folder>/NAME", which was the
/// first of its name, and "<folder>/NAME.2" and so on. All, if no name is given. There is one.
inline std::vector<std::string> golden_messages(const std::string& folder,
                                                const std::string& name = {}) {
  std::vector<std::string> found;
  for (const auto& each : std::filesystem::directory_iterator(golden_folder() + folder)) {
    if (each.path().extension() != ".hex") continue;
    const std::string stem = each.path().stem().string();
    if (name.empty() || stem == name || stem.starts_with(name + ".")) {
      found.push_back(folder + "/" + stem);
    }
  }
  std::sort(found.begin(), found.end());
  EXPECT_FALSE(found.empty()) << folder << ": " << name;
  return found;
}

}  // namespace braid::base
