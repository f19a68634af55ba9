#include "bnbd/frontend/nbd_keeper.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bnbd/frontend/apart.h"

namespace braid::bnbd {

namespace {

// Half of each would do: glibc's own part of the thread-local storage is under 4 KiB.
constexpr size_t kKeeperStackBytes = size_t{64} << 10;
constexpr size_t kStorageBytes = size_t{64} << 10;
constexpr char kQuit = 'q';

}  // namespace

struct NbdKeeper::Target {
  std::vector<std::byte> disconnect;
  const std::byte* message = nullptr;  // of `disconnect`
  size_t message_bytes = 0;
  char identifier_path[64] = {};
  bool trusts_number = false;
};

struct NbdKeeper::Job {
  int read_end = -1;
  int socket = -1;
  char identifier[64] = {};
  const Target* target = nullptr;  // null: nothing to disconnect yet

  // What follows runs over there: no allocation, no locks, no C++ runtime, and of the C library
  // only syscall(). Its other functions may be points where a thread is cancelled, which look into
  // a description of the thread that this storage does not have.
  bool is_ours(const Target& device) const;
  static int run(void* argument);
};

__attribute__((no_sanitize("thread", "address", "undefined"))) bool NbdKeeper::Job::is_ours(
    const Target& device) const {
  if (device.trusts_number) return true;
  const long fd = ::syscall(SYS_openat, AT_FDCWD, device.identifier_path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char found[sizeof(identifier)];
  const long got = ::syscall(SYS_read, fd, found, sizeof(found));
  ::syscall(SYS_close, fd);
  for (long i = 0; identifier[i] != '\0'; ++i) {
    if (i >= got || found[i] != identifier[i]) return false;
  }
  return true;
}

__attribute__((no_sanitize("thread", "address", "undefined"))) int NbdKeeper::Job::run(
    void* argument) {
  const Job& job = *static_cast<const Job*>(argument);
  ::syscall(SYS_prctl, PR_SET_NAME, "braid-nbd-keep", 0, 0, 0);
  const bool in_order = job.read_end < job.socket;  // without a call: no C++ runtime over here
  const int keep[] = {in_order ? job.read_end : job.socket, in_order ? job.socket : job.read_end};
  close_all_but(keep, 2);
  char byte = 0;
  long got = 0;
  do {
    got = ::syscall(SYS_read, job.read_end, &byte, 1);
  } while (got < 0);
  // The end of the pipe: the server and all its descriptors are gone.
  const Target* const device = __atomic_load_n(&job.target, __ATOMIC_ACQUIRE);
  if (got == 0 && device != nullptr && job.is_ours(*device)) {
    ::syscall(SYS_sendto, job.socket, device->message, device->message_bytes, MSG_NOSIGNAL, nullptr,
              0);
  }
  ::syscall(SYS_exit_group, 0);
  return 0;
}

base::Result<std::unique_ptr<NbdKeeper>> NbdKeeper::start(UniqueFd socket,
                                                          const std::string& identifier) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return base::sys_error(errno, "make a pipe");
  const UniqueFd read_end(ends[0]);
  std::unique_ptr<NbdKeeper> keeper(new NbdKeeper);
  keeper->write_end_.reset(ends[1]);
  keeper->job_ = std::make_unique<Job>();
  Job& job = *keeper->job_;
  job.read_end = read_end.get();
  job.socket = socket.get();
  std::snprintf(job.identifier, sizeof(job.identifier), "%s", identifier.c_str());

  keeper->memory_ = ::mmap(nullptr, kKeeperStackBytes + kStorageBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (keeper->memory_ == MAP_FAILED) {
    keeper->memory_ = nullptr;
    return base::sys_error(errno, "map a stack");
  }
  auto* const stack_top = static_cast<std::byte*>(keeper->memory_) + kKeeperStackBytes;
  // The thread pointer in the middle: some machines keep storage below it, some above. Its first
  // word points to itself where the machine wants that.
  std::byte* const thread_pointer = stack_top + kStorageBytes / 2;
  const auto itself = reinterpret_cast<uintptr_t>(thread_pointer);
  std::memcpy(thread_pointer, &itself, sizeof(itself));

  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  keeper->pid_ = clone_apart(&Job::run, stack_top, CLONE_VM | CLONE_SETTLS, &job, nullptr,
                             thread_pointer, nullptr);
  const int clone_errno = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (keeper->pid_ < 0) return base::sys_error(clone_errno, "start the helper of an nbd device");
  return keeper;
}

void NbdKeeper::watch(std::span<const std::byte> disconnect, const std::string& identifier_path) {
  auto target = std::make_unique<Target>();
  target->disconnect.assign(disconnect.begin(), disconnect.end());
  target->message = target->disconnect.data();
  target->message_bytes = target->disconnect.size();
  std::snprintf(target->identifier_path, sizeof(target->identifier_path), "%s",
                identifier_path.c_str());
  __atomic_store_n(&job_->target, target.get(), __ATOMIC_RELEASE);
  targets_.push_back(std::move(target));
}

void NbdKeeper::trust_number() {
  targets_.back()->trusts_number = true;
}

NbdKeeper::~NbdKeeper() {
  if (pid_ > 0) {
    (void)!::write(write_end_.get(), &kQuit, 1);
    while (::waitpid(pid_, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
  }
  if (memory_ != nullptr) ::munmap(memory_, kKeeperStackBytes + kStorageBytes);
}

}  // namespace braid::bnbd
