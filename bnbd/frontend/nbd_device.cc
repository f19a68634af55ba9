#include "bnbd/frontend/nbd_device.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "bnbd/frontend/apart.h"
#include "bnbd/frontend/detach_policy.h"
#include "bnbd/frontend/held_device.h"
#include "bnbd/frontend/nbd_keeper.h"
#include "bnbd/frontend/nbd_netlink.h"
#include "bnbd/frontend/nbd_server.h"
#include "bnbd/frontend/offloaded.h"

namespace braid::bnbd {

using base::Status;

namespace {

/// What workers use: it lives as long as the last of them.
struct Attachment {
  std::vector<UniqueFd> kernel_ends;
  HeldDevice held;
  std::unique_ptr<NbdKeeper> keeper;
  NbdParameters parameters;
  uint32_t max_transfer_bytes = 0;
  int index = -1;
  bool removed = false;  // the number may be another's by now
};

/// What a process apart was asked and what it found.
struct NbdJob {
  int hold_end = -1;
  char path[32] = {};
  char limit_path[64] = {};
  char limit[16] = {};
  const char* step = nullptr;  // what failed; null: nothing did
  int sys_errno = 0;
};

void fail(NbdJob& job, const char* step) {
  job.sys_errno = errno;
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
    return fail(job, "limit the size of its requests");
  }
  const int device_fd = ::open(job.path, O_RDONLY | O_CLOEXEC);
  if (device_fd < 0) return fail(job, "open it");
  if (const int sys_errno = HeldDevice::put(job.hold_end, device_fd); sys_errno != 0) {
    errno = sys_errno;
    fail(job, "hold it open");
  }
}

/// Claims the device for good (the claim goes into the queue too) and writes back dirty pages.
void claim_apart(void* argument) {
  auto& job = *static_cast<NbdJob*>(argument);
  const int device_fd = ::open(job.path, O_RDONLY | O_EXCL | O_CLOEXEC);
  if (device_fd < 0) return fail(job, "open it exclusively");
  if (::fsync(device_fd) != 0) return fail(job, "write back dirty pages");
  if (const int sys_errno = HeldDevice::put(job.hold_end, device_fd); sys_errno != 0) {
    errno = sys_errno;
    fail(job, "hold it");
  }
}

Status run_job(void (*body)(void*), NbdJob& job) {
  const int keep[] = {job.hold_end};
  BRAID_CHECK(run_apart(body, &job, keep));
  if (job.step == nullptr) return base::ok_status();
  return base::sys_error(job.sys_errno, job.step).with("{}", job.path);
}

std::string identifier_path(const Attachment& attachment) {
  return fmt::format("/sys/block/nbd{}/backend", attachment.index);
}

/// True while the device is the one that we connected.
bool is_ours(const Attachment& attachment) {
  std::ifstream file(identifier_path(attachment));
  std::string identifier;
  if (!std::getline(file, identifier)) return true;  // a kernel without identifiers
  return identifier == attachment.parameters.identifier;
}

Status start_keeper(Attachment& attachment) {
  BRAID_TRY(const auto message, make_nbd_disconnect(attachment.index));
  UniqueFd netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC));
  if (!netlink.valid()) return base::sys_error(errno, "open a generic netlink socket");
  BRAID_TRY(attachment.keeper,
            NbdKeeper::start(std::move(netlink), message, identifier_path(attachment),
                             attachment.parameters.identifier));
  return base::ok_status();
}

/// Makes the connected device go with this process.
Status tie_to_process(Attachment& attachment) {
  BRAID_CHECK(start_keeper(attachment));
  NbdJob job;
  job.hold_end = attachment.held.put_end();
  set_paths(job, attachment.index);
  std::snprintf(job.limit, sizeof(job.limit), "%u", attachment.max_transfer_bytes / 1024);
  BRAID_CHECK(run_job(&hold_apart, job));
  // Only now: whoever looks at the new device (udev) would otherwise end it by closing it.
  return nbd_disconnect_on_close(attachment.index, attachment.parameters.identifier);
}

/// On a worker: the whole set-up but the server, which runs already.
Status connect(Attachment& attachment) {
  std::vector<int> fds;
  for (const UniqueFd& end : attachment.kernel_ends) fds.push_back(end.get());
  BRAID_TRY(attachment.index, nbd_connect(attachment.parameters, fds));
  attachment.kernel_ends.clear();  // the kernel has its own references
  Status status = tie_to_process(attachment);
  if (!status.ok()) (void)nbd_disconnect(attachment.index);
  return status;
}

Status remove_device(Attachment& attachment, bool politely) {
  if (!attachment.removed && is_ours(attachment)) {
    if (politely) {
      NbdJob job;
      job.hold_end = attachment.held.put_end();
      set_paths(job, attachment.index);
      BRAID_CHECK(run_job(&claim_apart, job));
    }
    BRAID_CHECK(nbd_disconnect(attachment.index));
  }
  attachment.removed = true;
  attachment.keeper.reset();
  attachment.held.drop();  // a disconnected device fails at once: nothing to wait for
  return base::ok_status();
}

class NbdDevice : public KernelDevice {
 public:
  NbdDevice(base::Reactor& reactor, NbdServer::Ptr server, std::shared_ptr<Attachment> attachment,
            const KernelDeviceOptions& options)
      : reactor_(reactor),
        server_(std::move(server)),
        attachment_(std::move(attachment)),
        options_(options),
        path_(fmt::format("/dev/nbd{}", attachment_->index)),
        kind_text_(fmt::format("nbd.ko, {} socket pair{}", options.nbd_connections,
                               options.nbd_connections == 1 ? "" : "s")) {}
  ~NbdDevice() override {
    server_.reset();
    // Waits for the kernel: not on this thread.
    reactor_.host().execute(
        [attachment = std::move(attachment_)] { (void)remove_device(*attachment, false); });
  }

  const std::string& path() const override { return path_; }
  KernelDeviceKind kind() const override { return KernelDeviceKind::kNbd; }
  const std::string& kind_text() const override { return kind_text_; }
  bool alive() const override { return server_->alive(); }
  KernelDeviceStatistics statistics() const override { return server_->statistics(); }

  base::Task<Status> detach(bool force) override {
    const std::shared_ptr<Attachment> attachment = attachment_;
    DetachSteps steps;
    steps.name = fmt::format("nbd{}", attachment->index);
    steps.remove_politely = [attachment] { return remove_device(*attachment, true); };
    steps.remove_by_force = [attachment] { return remove_device(*attachment, false); };
    steps.force = force;
    steps.force_flush_timeout_ns = options_.force_flush_timeout_ns;
    co_return co_await detach_from(reactor_, *server_, std::move(steps));
  }

 private:
  base::Reactor& reactor_;
  NbdServer::Ptr server_;
  std::shared_ptr<Attachment> attachment_;
  const KernelDeviceOptions options_;
  const std::string path_;
  const std::string kind_text_;
};

/// Socket pairs: one end each for the kernel, the others for the server.
base::Result<std::vector<UniqueFd>> make_sockets(Attachment& attachment, unsigned count) {
  std::vector<UniqueFd> ours;
  for (unsigned i = 0; i < count; ++i) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return base::sys_error(errno, "make a socket pair");
    }
    attachment.kernel_ends.emplace_back(ends[0]);
    ours.emplace_back(ends[1]);
  }
  return ours;
}

}  // namespace

base::Task<base::Result<std::unique_ptr<KernelDevice>>> attach_nbd(base::Reactor& reactor,
                                                                   BlockDevice& device,
                                                                   KernelDeviceOptions options) {
  const std::function<Status()> find_module = [] { return find_nbd_module(); };
  BRAID_CO_CHECK(co_await offloaded<void>(reactor, find_module));

  const BlockInfo& info = device.info();
  auto attachment = std::make_shared<Attachment>();
  uint32_t salt = 0;
  reactor.host().random(std::as_writable_bytes(std::span(&salt, 1)));
  attachment->parameters.identifier = fmt::format("braid:{}:{:08x}", options.name, salt);
  attachment->parameters.size_bytes = info.size_bytes;
  attachment->parameters.block_bytes = info.logical_block_bytes;
  // A flush of a BlockDevice covers every write that was done before it, on whatever connection.
  attachment->parameters.transmission_flags =
      nbd_transmission_flags(info, options.nbd_connections > 1);
  attachment->parameters.dead_connection_timeout_s = options.nbd_dead_connection_timeout_s;
  attachment->max_transfer_bytes = slot_payload_bytes(info);
  BRAID_CO_TRY(attachment->held, HeldDevice::create());
  BRAID_CO_TRY(auto sockets, make_sockets(*attachment, options.nbd_connections));
  BRAID_CO_TRY(auto server,
               NbdServer::create(reactor, device, options.name, options.slots, std::move(sockets)));
  const std::function<Status()> set_up = [attachment] { return connect(*attachment); };
  BRAID_CO_CHECK(co_await offloaded<void>(reactor, set_up));
  co_return std::unique_ptr<KernelDevice>(
      std::make_unique<NbdDevice>(reactor, std::move(server), std::move(attachment), options));
}

}  // namespace braid::bnbd
