#include "bnbd/frontend/device_users.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

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

/// A disk or a partition of it, and who uses that.
struct Used {
  std::string name;    // "nbd0p1"
  std::string source;  // "/dev/nbd0p1"
  std::string device;  // "43:1"
  fs::path sysfs;
  bool open = false;  // in the process being looked at
  std::set<std::string> mounts;
  std::vector<std::string> others;
};

Used to_be_looked_at(const std::string& name, const fs::path& sysfs) {
  Used used;
  used.name = name;
  used.source = "/dev/" + name;
  used.device = first_line(sysfs / "dev");
  used.sysfs = sysfs;
  return used;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Marks what descriptors of the process refer to. Reads the links, never the files.
void mark_open(const fs::path& process, std::vector<Used>& all) {
  std::error_code ignored;
  for (const std::string& fd : names_in(process / "fd")) {
    const fs::path target = fs::read_symlink(process / "fd" / fd, ignored);
    for (Used& used : all) used.open |= target == used.source;
  }
}

void add_process(const fs::path& process, std::vector<Used>& all) {
  std::ifstream mountinfo(process / "mountinfo");
  for (std::string line; std::getline(mountinfo, line);) {
    for (Used& used : all) {
      const std::string point = mount_point_in_line(line, used.device, used.source);
      if (!point.empty()) used.mounts.insert(point);
    }
  }
  mark_open(process, all);
  for (Used& used : all) {
    if (!std::exchange(used.open, false)) continue;
    used.others.push_back(fmt::format("open in process {} ({})", process.filename().string(),
                                      first_line(process / "comm")));
  }
}

void add_stacked(const std::string& name, const fs::path& sysfs, std::vector<std::string>& found) {
  for (const std::string& partition : partitions_of(name)) {
    add_stacked(partition, sysfs / partition, found);
  }
  for (const std::string& holder : names_in(sysfs / "holders")) {
    add_stacked(holder, fs::path("/sys/block") / holder, found);
  }
  // A device on two partitions of this one is there once.
  if (std::find(found.begin(), found.end(), name) == found.end()) found.push_back(name);
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

std::vector<std::string> partitions_of(const std::string& name) {
  const fs::path sysfs = fs::path("/sys/block") / name;
  std::vector<std::string> partitions;
  std::error_code ignored;
  for (const std::string& entry : names_in(sysfs)) {
    if (fs::exists(sysfs / entry / "partition", ignored)) partitions.push_back(entry);
  }
  return partitions;
}

std::vector<std::string> block_devices_on(const std::string& name) {
  std::vector<std::string> found;
  add_stacked(name, fs::path("/sys/block") / name, found);
  return found;
}

std::vector<std::string> users_of_block_device(const std::string& name) {
  const fs::path sysfs = fs::path("/sys/block") / name;
  std::vector<Used> all = {to_be_looked_at(name, sysfs)};
  for (const std::string& partition : partitions_of(name)) {
    all.push_back(to_be_looked_at(partition, sysfs / partition));
  }
  for (const std::string& entry : names_in("/proc")) {
    if (is_number(entry)) add_process(fs::path("/proc") / entry, all);
  }
  std::vector<std::string> users;
  for (const Used& used : all) {
    const std::string which = used.name == name ? "" : used.name + " ";
    for (const std::string& holder : names_in(used.sysfs / "holders")) {
      users.push_back(which + "held by " + holder);
    }
    std::ifstream swaps("/proc/swaps");
    for (std::string line; std::getline(swaps, line);) {
      if (line.substr(0, line.find_first_of(" \t")) == used.source) {
        users.push_back(which + "used as swap");
      }
    }
    for (const std::string& point : used.mounts) users.push_back(which + "mounted at " + point);
    for (const std::string& other : used.others) users.push_back(which + other);
  }
  if (users.size() > kUsersMax) {
    const size_t more = users.size() - kUsersMax;
    users.resize(kUsersMax);
    users.push_back(fmt::format("{} more", more));
  }
  return users;
}

}  // namespace braid::bnbd
