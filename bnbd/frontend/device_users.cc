#include "bnbd/frontend/device_users.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "base/mount_line.h"

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
  const auto mount = base::parse_mount_line(line);
  if (!mount.has_value()) return {};
  return mount->device == device || mount->source == source ? mount->point : std::string();
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
      if (base::swap_in_line(line) == used.source) users.push_back(which + "used as swap");
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
