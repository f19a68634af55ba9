#include "bench/floor/bare_fuse.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <stdexcept>

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>

#include "bench/floor/shared_pages.h"
#include "bnbd/frontend/fuse_mount.h"
#include "bnbd/frontend/loop_device.h"

namespace braid::bench {
namespace {

constexpr uint32_t kMaxIoBytes = 1 << 20;
constexpr unsigned kAtATime = 64;
constexpr unsigned kEmptyMax = 1000;  // reads without a request before it sleeps
constexpr fuse_ino_t kBareFile = FUSE_ROOT_ID + 1;
constexpr double kForEverSeconds = 1e9;
constexpr const char* kBareName = "bare";
constexpr int kFuseStartMs = 30'000;

std::span<std::byte> store_of(fuse_req_t request) {
  const auto& pages = *static_cast<const SharedPages*>(fuse_req_userdata(request));
  return {pages.data(), pages.size()};
}

struct stat attributes(fuse_req_t request, fuse_ino_t inode) {
  struct stat stat = {};
  stat.st_ino = inode;
  stat.st_nlink = 1;
  stat.st_mode = inode == kBareFile ? S_IFREG | 0600 : S_IFDIR | 0500;
  if (inode == kBareFile) stat.st_size = static_cast<off_t>(store_of(request).size());
  return stat;
}

/// libfuse's callbacks: a directory with one file.
struct Callbacks {
  static void init(void*, struct fuse_conn_info* connection) {
    connection->max_write = connection->max_read = kMaxIoBytes;
    connection->max_readahead = 0;
    connection->max_background = connection->congestion_threshold = kAtATime;
    connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
                                               FUSE_CAP_SPLICE_MOVE | FUSE_CAP_WRITEBACK_CACHE);
    connection->want |= connection->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
  }
  static void lookup(fuse_req_t request, fuse_ino_t, const char* name) {
    if (std::string_view(name) != kBareName) {
      fuse_reply_err(request, ENOENT);
      return;
    }
    struct fuse_entry_param entry = {};
    entry.ino = kBareFile;
    entry.attr = attributes(request, kBareFile);
    entry.attr_timeout = entry.entry_timeout = kForEverSeconds;
    fuse_reply_entry(request, &entry);
  }
  static void getattr(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info*) {
    const struct stat stat = attributes(request, inode);
    fuse_reply_attr(request, &stat, kForEverSeconds);
  }
  static void open(fuse_req_t request, fuse_ino_t, struct fuse_file_info* file) {
    file->direct_io = 1;
    fuse_reply_open(request, file);
  }
  static void read(fuse_req_t request, fuse_ino_t, size_t bytes, off_t offset,
                   struct fuse_file_info*) {
    const std::byte* const from = store_of(request).data() + offset;
    fuse_reply_buf(request, reinterpret_cast<const char*>(from), bytes);
  }
  static void write(fuse_req_t request, fuse_ino_t, const char* data, size_t bytes, off_t offset,
                    struct fuse_file_info*) {
    std::memcpy(store_of(request).data() + offset, data, bytes);
    fuse_reply_write(request, bytes);
  }
  static void fsync(fuse_req_t request, fuse_ino_t, int, struct fuse_file_info*) {
    fuse_reply_err(request, 0);
  }
};

struct fuse_session* make_session(int fuse_fd, const SharedPages& store) {
  struct fuse_lowlevel_ops operations = {};
  operations.init = &Callbacks::init;
  operations.lookup = &Callbacks::lookup;
  operations.getattr = &Callbacks::getattr;
  operations.open = &Callbacks::open;
  operations.read = &Callbacks::read;
  operations.write = &Callbacks::write;
  operations.fsync = &Callbacks::fsync;
  std::string program = "bare", max_read = fmt::format("-omax_read={}", kMaxIoBytes);
  char* arguments[] = {program.data(), max_read.data(), nullptr};
  struct fuse_args args = FUSE_ARGS_INIT(2, arguments);
  auto* const session =
      fuse_session_new(&args, &operations, sizeof operations, const_cast<SharedPages*>(&store));
  fuse_opt_free_args(&args);
  const std::string place = fmt::format("/dev/fd/{}", fuse_fd);
  if (session == nullptr || fuse_session_mount(session, place.c_str()) != 0)
    throw std::runtime_error("libfuse made no session");
  return session;
}

/// Until the file system goes. The descriptor does not block. Spins while there is work: the other
/// sides of a row want its CPU.
void serve_file(int fuse_fd, struct fuse_session* session) {
  std::vector<std::byte> room(kMaxIoBytes + 4096);
  for (unsigned empty = 0;;) {
    const ssize_t got = ::read(fuse_fd, room.data(), room.size());
    if (got < 0 && errno == EAGAIN && ++empty > kEmptyMax) {
      pollfd readable{.fd = fuse_fd, .events = POLLIN, .revents = 0};
      ::poll(&readable, 1, -1);
      empty = 0;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOENT)) {
      sched_yield();
      continue;
    }
    if (got <= 0) return;
    empty = 0;
    struct fuse_buf buffer = {};
    buffer.mem = room.data();
    buffer.size = static_cast<size_t>(got);
    fuse_session_process_buf(session, &buffer);
  }
}

class BareFuseLoop : public FioTarget {
 public:
  ~BareFuseLoop() override {
    server_.reset();  // what the kernel still asks fails from here on
    held_.drop();
  }
  std::string name() const override { return "fio io_uring on loop on a bare FUSE file"; }
  std::string threads() const override {
    return "the kernel's workers sleep; the server (on either CPU) spins while there is work, and "
           "yields";
  }

  base::Status start(Bench& bench, uint64_t store_bytes) override {
    BRAID_TRY(bnbd::FuseMount mount, bnbd::create_fuse_mount(kMaxIoBytes));
    BRAID_TRY(server_, Process::call(bench.interrupts, bench.cpus.server, [&](Channel& channel) {
                pin_to(cpus_of(bench.cpus, Placement::kEither));
                const SharedPages store(store_bytes);
                store.populate();
                auto* const session = make_session(mount.device.get(), store);
                channel.send({{"ready", true}});
                serve_file(mount.device.get(), session);
              }));
    mount.device = {};  // the server's alone: with it the file system goes
    BRAID_TRY(const auto ready, server_->receive(kFuseStartMs));
    BRAID_TRY(held_, bnbd::HeldDevice::create());
    const bnbd::LoopOptions options{.file_name = kBareName,
                                    .label = fmt::format("braid-bench:{}", getpid())};
    BRAID_TRY(const bnbd::LoopDevice loop, bnbd::attach_loop(mount.root.get(), options, held_));
    device_ = fmt::format("/dev/loop{}", loop.index);
    return base::ok_status();
  }
  std::vector<std::string> engine() const override {
    return {"--ioengine=io_uring", "--direct=1", "--filename=" + device_};
  }
  std::vector<pid_t> servers() const override { return {server_->pid()}; }

 private:
  std::optional<Process> server_;
  bnbd::HeldDevice held_;  // the loop device goes with it
  std::string device_;
};

}  // namespace

std::unique_ptr<FioTarget> bare_fuse_loop() {
  return std::make_unique<BareFuseLoop>();
}

}  // namespace braid::bench
