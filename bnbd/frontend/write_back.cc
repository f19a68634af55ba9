#include "bnbd/frontend/write_back.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "bnbd/frontend/apart.h"
#include "bnbd/frontend/device_users.h"

namespace braid::bnbd {

namespace {

constexpr size_t kDevicesMax = 64;

/// Plain memory: no C++ runtime over there.
struct WriteBackJob {
  std::array<std::array<char, 64>, kDevicesMax> paths = {};
  size_t count = 0;
  size_t failed = 0;           // which of them
  const char* step = nullptr;  // what failed first; null: nothing did
  int sys_errno = 0;
};

void write_back_apart(void* argument) {
  auto& job = *static_cast<WriteBackJob*>(argument);
  const auto fail = [&job](size_t which, const char* step) {
    if (job.step != nullptr) return;
    job.failed = which;
    job.step = step;
    job.sys_errno = errno;
  };
  for (size_t i = 0; i < job.count; ++i) {
    const int fd = ::open(job.paths[i].data(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      fail(i, "open");
      continue;
    }
    // Has the file system of the device written too, in whatever mount namespace it is.
    if (::ioctl(fd, BLKFLSBUF, 0) != 0) fail(i, "write back the file system of");
    if (::fsync(fd) != 0) fail(i, "write back");
    ::close(fd);
  }
}

}  // namespace

base::Status write_back(const std::string& name) {
  WriteBackJob job;
  // The lowest are last: those must not be missing.
  std::vector<std::string> devices = block_devices_on(name);
  if (devices.size() > kDevicesMax) {
    devices.erase(devices.begin(), devices.end() - static_cast<ptrdiff_t>(kDevicesMax));
  }
  for (const std::string& device : devices) {
    std::snprintf(job.paths[job.count].data(), job.paths[job.count].size(), "/dev/%s",
                  device.c_str());
    ++job.count;
  }
  BRAID_CHECK(run_apart(&write_back_apart, &job, {}));
  if (job.step == nullptr) return base::ok_status();
  return base::sys_error(job.sys_errno, job.step).with("{}", job.paths[job.failed].data());
}

}  // namespace braid::bnbd
