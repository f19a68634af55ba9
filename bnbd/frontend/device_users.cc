#include "bnbd/frontend/device_users.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

namespace braid::bnbd {

namespace {

namespace fs = std::filesystem;

constexpr size_t kUsersMax = 8;  // enough for a message

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

/// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] < '8';
    };
    if (text[i] == '\\' && digit(i + 1) && digit(i + 2) && digit(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// True if a descriptor of the process refers to the device. Reads the links, never the files.
bool has_open(const fs::path& process, const std::string& source) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(process / "fd", ignored)) {
    if (fs::read_symlink(entry.path(), ignored) == source) return true;
  }
  return false;
}

void add_process(const fs::path& process, const std::string& device, const std::string& source,
                 std::set<std::string>& mounts, std::vector<std::string>& openers) {
  std::ifstream mountinfo(process / "mountinfo");
  for (std::string line; std::getline(mountinfo, line);) {
    const std::string point = mount_point_in_line(line, device, source);
    if (!point.empty()) mounts.insert(point);
  }
  if (has_open(process, source)) {
    openers.push_back(fmt::format("open in process {} ({})", process.filename().string(),
                                  first_line(process / "comm")));
  }
}

}  // namespace

std::string mount_point_in_line(const std::string& line, const std::string& device,
                                const std::string& source) {
  // id parent major:minor root mount-point options [tags] - type source super-options
  std::istringstream words(line);
  std::string id, parent, numbers, root, point, word;
  if (!(words >> id >> parent >> numbers >> root >> point)) return {};
  if (numbers == device) return unescape(point);
  while (words >> word && word != "-") {
  }
  std::string type, mounted;
  if (words >> type >> mounted && unescape(mounted) == source) return unescape(point);
  return {};
}

std::vector<std::string> users_of_block_device(const std::string& name) {
  const std::string source = "/dev/" + name;
  const fs::path sysfs = fs::path("/sys/block") / name;
  const std::string device = first_line(sysfs / "dev");
  std::vector<std::string> users;
  std::error_code ignored;
  for (const auto& holder : fs::directory_iterator(sysfs / "holders", ignored)) {
    users.push_back("held by " + holder.path().filename().string());
  }
  std::ifstream swaps("/proc/swaps");
  for (std::string line; std::getline(swaps, line);) {
    if (line.substr(0, line.find_first_of(" \t")) == source) users.push_back("used as swap");
  }
  std::set<std::string> mounts;
  std::vector<std::string> openers;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    if (is_number(entry.path().filename().string())) {
      add_process(entry.path(), device, source, mounts, openers);
    }
  }
  for (const std::string& point : mounts) users.push_back("mounted at " + point);
  users.insert(users.end(), openers.begin(), openers.end());
  if (users.size() > kUsersMax) {
    const size_t more = users.size() - kUsersMax;
    users.resize(kUsersMax);
    users.push_back(fmt::format("{} more", more));
  }
  return users;
}

}  // namespace braid::bnbd
