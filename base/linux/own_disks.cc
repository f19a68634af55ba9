#include "base/linux/own_disks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/mount_line.h"

namespace braid::base {
namespace {

namespace fs = std::filesystem;

constexpr int kDepthMax = 16;  // of devices on devices

MountLine mount_of(uint64_t mount_id) {
  std::ifstream mountinfo("/proc/self/mountinfo");
  for (std::string line; std::getline(mountinfo, line);) {
    auto mount = parse_mount_line(line);
    if (mount.has_value() && mount->id == mount_id) return *std::move(mount);
  }
  return {};
}

std::string numbers(unsigned major_number, unsigned minor_number) {
  return fmt::format("{}:{}", major_number, minor_number);
}

}  // namespace

void OwnDisks::set(const std::string& name, bool served) {
  const std::lock_guard lock(mutex_);
  if (served) {
    names_.insert(name);
  } else {
    names_.erase(name);
  }
}

std::string OwnDisks::below_name(const std::string& name, int depth) const {
  if (names_.contains(name)) return name;
  if (depth == 0) return {};
  std::error_code ignored;
  const fs::path real = fs::canonical(fs::path("/sys/class/block") / name, ignored);
  if (ignored) return {};
  if (fs::exists(real / "partition", ignored)) {
    return below_name(real.parent_path().filename().string(), depth - 1);
  }
  for (fs::directory_iterator slave(real / "slaves", ignored), end; !ignored && slave != end;
       slave.increment(ignored)) {
    const std::string own = below_name(slave->path().filename().string(), depth - 1);
    if (!own.empty()) return own;
  }
  return {};
}

std::string OwnDisks::below(const std::string& device) const {
  std::error_code failed;
  const fs::path real = fs::canonical("/sys/dev/block/" + device, failed);
  return failed ? std::string() : below_name(real.filename().string(), kDepthMax);
}

Status OwnDisks::check(int path_fd, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  if (names_.empty()) return {};
  struct statx found {};
  constexpr unsigned kWanted = STATX_TYPE | STATX_MODE | STATX_MNT_ID;
  // What is cached will do: the question itself must not wait for the disk.
  if (::statx(path_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, kWanted, &found) != 0) {
    return sys_error(errno, fmt::format("examining \"{}\"", name));
  }
  const MountLine mount = mount_of(found.stx_mnt_id);
  std::string own = below(numbers(found.stx_dev_major, found.stx_dev_minor));
  if (own.empty()) own = below(mount.device);
  if (own.empty() && mount.source.starts_with("/dev/")) {
    std::error_code failed;
    const fs::path node = fs::canonical(mount.source, failed);
    if (!failed) own = below_name(node.filename().string(), kDepthMax);
  }
  if (own.empty() && S_ISBLK(found.stx_mode)) {
    own = below(numbers(found.stx_rdev_major, found.stx_rdev_minor));
  }
  if (own.empty()) return {};
  return make_error(Errc::kInvalid,
                    "\"{}\" lies on /dev/{}, which this very process serves: it would wait for "
                    "itself; let another process serve it",
                    name, own);
}

}  // namespace braid::base
