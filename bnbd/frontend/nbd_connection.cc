#include "bnbd/frontend/nbd_connection.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "bnbd/frontend/apart.h"
#include "bnbd/frontend/dirty_pages.h"

namespace braid::bnbd {

using base::Errc;
using base::Status;

namespace {

constexpr int kIndexMax = 255;

/// What a process apart was asked and what it found.
struct NbdJob {
  int hold_end = -1;
  bool write_back = false;
  char path[32] = {};
  char limit_path[64] = {};
  char limit[16] = {};
  const char* step = nullptr;  // what failed; null: nothing did
  int sys_errno = 0;
  uint64_t dirty_pages = 0;
};

void fail(NbdJob& job, const char* step, int sys_errno) {
  job.sys_errno = sys_errno;
  job.step = step;
}

void set_paths(NbdJob& job, int index) {
  std::snprintf(job.path, sizeof(job.path), "/dev/nbd%d", index);
  std::snprintf(job.limit_path, sizeof(job.limit_path), "/sys/block/nbd%d/queue/max_sectors_kb",
                index);
}

/// Limits the kernel's requests to what a slot holds, and leaves the device open in the queue.
void hold_apart(void* argument) {
  auto& job = *static_cast<NbdJob*>(argument);
  const int limit_fd = ::open(job.limit_path, O_WRONLY | O_CLOEXEC);
  if (limit_fd < 0 || ::write(limit_fd, job.limit, std::strlen(job.limit)) < 0) {
    return fail(job, "limit the size of its requests", errno);
  }
  const int device_fd = ::open(job.path, O_RDONLY | O_CLOEXEC);
  if (device_fd < 0) return fail(job, "open it", errno);
  if (const int sys_errno = HeldDevice::put(job.hold_end, device_fd); sys_errno != 0) {
    fail(job, "hold it open", sys_errno);
  }
}

/// Claims the device for good (the claim goes into the queue too) and sees to its dirty pages.
void claim_apart(void* argument) {
  auto& job = *static_cast<NbdJob*>(argument);
  const int device_fd = ::open(job.path, O_RDONLY | O_EXCL | O_CLOEXEC);
  if (device_fd < 0) return fail(job, "open it exclusively", errno);
  if (job.write_back) {
    if (::fsync(device_fd) != 0) return fail(job, "write back dirty pages", errno);
  } else {
    const int sys_errno = count_dirty_pages(device_fd, job.dirty_pages);
    if (sys_errno != 0 || job.dirty_pages != 0) {
      return fail(job, "find it without dirty pages", sys_errno == 0 ? EIO : sys_errno);
    }
  }
  if (const int sys_errno = HeldDevice::put(job.hold_end, device_fd); sys_errno != 0) {
    fail(job, "hold it", sys_errno);
  }
}

Status run_job(void (*body)(void*), NbdJob& job) {
  const int keep[] = {job.hold_end};
  BRAID_CHECK(run_apart(body, &job, keep));
  if (job.step == nullptr) return base::ok_status();
  return base::sys_error(job.sys_errno, job.step).with("{}", job.path);
}

std::string identifier_path(int index) {
  return fmt::format("/sys/block/nbd{}/backend", index);
}

/// Whose the connected device is; empty: nobody's, or the kernel does not tell.
std::string owner_of(int index) {
  std::ifstream file(identifier_path(index));
  std::string identifier;
  std::getline(file, identifier);
  return identifier;
}

bool is_connected(int index) {
  std::error_code ignored;
  return std::filesystem::exists(fmt::format("/sys/block/nbd{}/pid", index), ignored);
}

}  // namespace

base::Result<std::shared_ptr<NbdConnection>> NbdConnection::create(
    NbdParameters parameters, uint32_t max_transfer_bytes, std::vector<UniqueFd> kernel_ends) {
  auto connection = std::make_shared<NbdConnection>();
  connection->parameters_ = std::move(parameters);
  connection->max_transfer_bytes_ = max_transfer_bytes;
  connection->kernel_ends_ = std::move(kernel_ends);
  BRAID_TRY(connection->held_, HeldDevice::create());
  return connection;
}

bool NbdConnection::is_ours() const {
  return !kernel_tells_owner_ || owner_of(index_) == parameters_.identifier;
}

/// kBusy, kExists: the number is another's.
Status NbdConnection::try_index(int index) {
  BRAID_TRY(const auto disconnect, make_nbd_disconnect(index));
  keeper_->watch(disconnect, identifier_path(index));
  std::vector<int> fds;
  for (const UniqueFd& end : kernel_ends_) fds.push_back(end.get());
  return nbd_connect(parameters_, fds, index);
}

Status NbdConnection::connect() {
  UniqueFd netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC));
  if (!netlink.valid()) return base::sys_error(errno, "open a generic netlink socket");
  BRAID_TRY(keeper_, NbdKeeper::start(std::move(netlink), parameters_.identifier));
  Status status =
      base::make_error(Errc::kBusy, "/dev/nbd0 to /dev/nbd{} are all in use", kIndexMax);
  for (int index = 0; index <= kIndexMax; ++index) {
    if (is_connected(index)) continue;
    status = try_index(index);
    if (status.code() == Errc::kBusy || status.code() == Errc::kExists) continue;
    index_ = index;
    break;
  }
  BRAID_CHECK(status);
  kernel_ends_.clear();  // the kernel has its own references
  kernel_tells_owner_ = owner_of(index_) == parameters_.identifier;
  if (!kernel_tells_owner_) keeper_->trust_number();
  return base::ok_status();
}

Status NbdConnection::tie() {
  NbdJob job;
  job.hold_end = held_.put_end();
  set_paths(job, index_);
  std::snprintf(job.limit, sizeof(job.limit), "%u", max_transfer_bytes_ / 1024);
  BRAID_CHECK(run_job(&hold_apart, job));
  // Only now: whoever looks at the new device (udev) would otherwise end it by closing it.
  return nbd_disconnect_on_close(index_, parameters_.identifier);
}

Status NbdConnection::claim(NbdRemoval how) const {
  NbdJob job;
  job.hold_end = held_.put_end();
  job.write_back = how == NbdRemoval::kPolite;
  set_paths(job, index_);
  Status claimed = run_job(&claim_apart, job);
  if (claimed.ok() || how == NbdRemoval::kPolite) return claimed;
  if (const auto refused = dirty_pages_error(job.sys_errno, job.dirty_pages)) return *refused;
  return claimed;
}

Status NbdConnection::remove(NbdRemoval how) {
  if (!removed_ && is_ours()) {
    if (how != NbdRemoval::kForced) BRAID_CHECK(claim(how));
    BRAID_CHECK(nbd_disconnect(index_));
  }
  removed_ = true;
  keeper_.reset();
  held_.drop();  // a disconnected device fails at once: nothing to wait for
  return base::ok_status();
}

Status NbdConnection::resize(uint64_t size_bytes) const {
  if (removed_ || !is_ours()) {
    return base::make_error(base::Errc::kNotFound, "/dev/nbd{} is not connected any more", index_);
  }
  return nbd_resize(index_, parameters_.identifier, size_bytes);
}

void NbdConnection::fail_waiting() const {
  // If it fails, remove() says so.
  if (is_ours()) (void)nbd_disconnect(index_);
}

}  // namespace braid::bnbd
