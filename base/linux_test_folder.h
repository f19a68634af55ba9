// A folder of a test's own on the real file system.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace braid::base {

/// A name that no other test or process uses at the same time.
inline std::string unique_name(const std::string& what) {
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  return what + "-" + std::to_string(::getpid()) + "-" + (test != nullptr ? test->name() : "");
}

/// Where a scratch folder is on a real disk, which /tmp often is not, and out of the source tree.
inline std::string folder_on_disk() {
  const char* const programs = std::getenv("BRAID_BIN_DIR");  // set by ctest
  if (programs) std::filesystem::create_directories(programs);
  return programs ? programs : std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

/// A folder that goes with the object.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& beneath = testing::TempDir())
      : path_(beneath + "/" + unique_name("braid")) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void make_file(const std::string& name, size_t size_bytes) const {
    std::ofstream(*this / name).close();
    std::filesystem::resize_file(*this / name, size_bytes);
  }

 private:
  const std::string path_;
};

}  // namespace braid::base
