#include "bnbd/frontend/loop_device.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bnbd/frontend/apart.h"
#include "bnbd/frontend/dirty_pages.h"

namespace braid::bnbd {

namespace {

// Another process may take the free device that the kernel named before we do.
constexpr int kAttemptsMax = 64;

/// What a process apart was asked and what it found. Plain memory: no C++ runtime over there.
struct LoopJob {
  // asked
  int mount_root_fd = -1;
  int put_end = -1;  // of the HeldDevice
  int take_end = -1;
  char file_name[256] = {};
  struct loop_config config = {};
  LoopRemoval removal = LoopRemoval::kPolite;
  // found
  int index = -1;
  const char* step = nullptr;  // what failed; null: nothing did
  int sys_errno = 0;
  uint64_t dirty_pages = 0;
  uint64_t size_bytes = 0;
};

void fail(LoopJob& job, const char* step, int sys_errno) {
  job.step = step;
  job.sys_errno = sys_errno;
}

int open_loop(int index, int flags) {
  char path[32];
  std::snprintf(path, sizeof(path), "/dev/loop%d", index);
  return ::open(path, flags | O_CLOEXEC);
}

bool holds_label(int loop_fd, const LoopJob& job) {
  struct loop_info64 info = {};
  return ::ioctl(loop_fd, LOOP_GET_STATUS64, &info) == 0 &&
         std::memcmp(info.lo_file_name, job.config.info.lo_file_name, LO_NAME_SIZE) == 0;
}

/// One attempt: true when it is decided, either way.
bool try_free_device(LoopJob& job, int control_fd) {
  job.index = ::ioctl(control_fd, LOOP_CTL_GET_FREE);
  if (job.index < 0) return fail(job, "LOOP_CTL_GET_FREE", errno), true;
  const int loop_fd = open_loop(job.index, O_RDWR);
  if (loop_fd < 0) return fail(job, "open the free loop device", errno), true;
  if (::ioctl(loop_fd, LOOP_CONFIGURE, &job.config) != 0) {
    const int sys_errno = errno;
    ::close(loop_fd);
    if (sys_errno == EBUSY || sys_errno == EAGAIN) return false;
    return fail(job, "LOOP_CONFIGURE", sys_errno), true;
  }
  // From here on an early end of this process closes, and so clears, the device.
  if (const int sys_errno = HeldDevice::put(job.put_end, loop_fd); sys_errno != 0) {
    fail(job, "hold the loop device open", sys_errno);
  }
  ::ioctl(loop_fd, LOOP_GET_STATUS64, &job.config.info);
  ::close(loop_fd);
  return true;
}

void attach_apart(void* argument) {
  auto& job = *static_cast<LoopJob*>(argument);
  const bool read_only = (job.config.info.lo_flags & LO_FLAGS_READ_ONLY) != 0;
  const int file_fd = ::openat(job.mount_root_fd, job.file_name,
                               (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW);
  if (file_fd < 0) return fail(job, "open the file of the FUSE session", errno);
  job.config.fd = static_cast<uint32_t>(file_fd);
  const int control_fd = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control_fd < 0) return fail(job, "open /dev/loop-control", errno);
  for (int i = 0; i < kAttemptsMax; ++i) {
    if (try_free_device(job, control_fd)) return;
  }
  fail(job, "find a free loop device", EBUSY);
}

/// Opens the device if it is still the one with our label; else -1: the number is free, or
/// another's.
int open_ours(const LoopJob& job) {
  const int loop_fd = open_loop(job.index, O_RDONLY);
  if (loop_fd < 0 || holds_label(loop_fd, job)) return loop_fd;
  ::close(loop_fd);
  return -1;
}

/// Claims the device, which keeps everybody from mounting it, and sees to its dirty pages. The
/// claim's descriptor, or -1: it stays as it is.
int claim_clean(LoopJob& job) {
  const int claimed_fd = open_loop(job.index, O_RDONLY | O_EXCL);
  if (claimed_fd < 0) return fail(job, "open it exclusively", errno), -1;
  if (job.removal == LoopRemoval::kPolite) {
    if (::fsync(claimed_fd) == 0) return claimed_fd;
    fail(job, "write back dirty pages", errno);
  } else {
    const int sys_errno = count_dirty_pages(claimed_fd, job.dirty_pages);
    if (sys_errno == 0 && job.dirty_pages == 0) return claimed_fd;
    fail(job, "find it without dirty pages", sys_errno == 0 ? EIO : sys_errno);
  }
  ::close(claimed_fd);
  return -1;
}

void detach_apart(void* argument) {
  auto& job = *static_cast<LoopJob*>(argument);
  const bool forced = job.removal == LoopRemoval::kForced;
  // Claiming it by number alone would claim the device that another has set up since.
  int last_fd = open_ours(job);
  if (last_fd >= 0 && !forced) {
    const int claimed_fd = claim_clean(job);
    ::close(last_fd);
    if (claimed_fd < 0) return;
    last_fd = claimed_fd;
  }
  if (const int held_fd = HeldDevice::take(job.take_end); held_fd >= 0) ::close(held_fd);
  // The last close clears it: this one, unless somebody has it open still.
  if (last_fd >= 0) ::close(last_fd);
  const int left_fd = open_ours(job);
  if (left_fd < 0) return;
  fail(job, "still open", EBUSY);
  if (forced) return;
  if (const int sys_errno = HeldDevice::put(job.put_end, left_fd); sys_errno != 0) {
    fail(job, "hold the loop device open again", sys_errno);
  }
}

void resize_apart(void* argument) {
  auto& job = *static_cast<LoopJob*>(argument);
  const int loop_fd = open_ours(job);
  if (loop_fd < 0) return fail(job, "find the device", ENXIO);
  if (::ioctl(loop_fd, LOOP_SET_CAPACITY, 0) != 0) {
    fail(job, "LOOP_SET_CAPACITY", errno);
  } else if (::ioctl(loop_fd, BLKGETSIZE64, &job.size_bytes) != 0) {
    fail(job, "BLKGETSIZE64", errno);
  }
  ::close(loop_fd);
}

base::Error job_error(const LoopJob& job, const std::string& what) {
  const base::Error error = base::sys_error(job.sys_errno, job.step);
  if (job.sys_errno == ENOENT || job.sys_errno == ENODEV) {
    return base::Error(base::Errc::kNotSupported, error.message())
        .with("{} (are the loop devices of this kernel visible in /dev?)", what);
  }
  return error.with("{}", what);
}

void set_label(LoopJob& job, const std::string& label) {
  const size_t length = std::min<size_t>(label.size(), LO_NAME_SIZE - 1);
  std::memcpy(job.config.info.lo_file_name, label.data(), length);
}

}  // namespace

base::Result<LoopDevice> attach_loop(int mount_root_fd, const LoopOptions& options,
                                     const HeldDevice& held) {
  LoopJob job;
  job.mount_root_fd = mount_root_fd;
  job.put_end = held.put_end();
  std::snprintf(job.file_name, sizeof(job.file_name), "%s", options.file_name.c_str());
  job.config.block_size = options.logical_block_bytes;
  job.config.info.lo_flags = LO_FLAGS_DIRECT_IO | LO_FLAGS_AUTOCLEAR;
  if (options.read_only) job.config.info.lo_flags |= LO_FLAGS_READ_ONLY;
  set_label(job, options.label);

  const int keep[] = {mount_root_fd, held.put_end()};
  BRAID_CHECK(run_apart(&attach_apart, &job, keep));
  if (job.step != nullptr) {
    return job_error(job, fmt::format("set up a loop device for {}", options.file_name));
  }
  LoopDevice device;
  device.index = job.index;
  device.direct_io = (job.config.info.lo_flags & LO_FLAGS_DIRECT_IO) != 0;
  return device;
}

base::Status resize_loop(int index, const std::string& label, uint64_t size_bytes) {
  LoopJob job;
  job.index = index;
  set_label(job, label);
  BRAID_CHECK(run_apart(&resize_apart, &job, {}));
  if (job.step != nullptr) {
    return job_error(job, fmt::format("give /dev/loop{} another size", index));
  }
  if (job.size_bytes == size_bytes) return base::ok_status();
  return base::make_error(base::Errc::kNotSupported,
                          "/dev/loop{} keeps {} bytes: this kernel does not ask the file for its "
                          "{}; unmap it and map it again",
                          index, job.size_bytes, size_bytes);
}

base::Status detach_loop(int index, const std::string& label, const HeldDevice& held,
                         LoopRemoval removal) {
  LoopJob job;
  job.index = index;
  job.put_end = held.put_end();
  job.take_end = held.take_end();
  job.removal = removal;
  set_label(job, label);
  const int keep[] = {held.put_end(), held.take_end()};
  BRAID_CHECK(run_apart(&detach_apart, &job, keep));
  if (job.step == nullptr) return base::ok_status();
  if (removal == LoopRemoval::kIfClean) {
    if (const auto refused = dirty_pages_error(job.sys_errno, job.dirty_pages)) return *refused;
  }
  return job_error(job, fmt::format("take away /dev/loop{}", index));
}

}  // namespace braid::bnbd
