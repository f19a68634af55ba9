#include "base/linux_host.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include "base/linux/event.h"
#include "base/linux/executor.h"
#include "base/linux/fd.h"
#include "base/linux/file.h"
#include "base/linux/link_news.h"
#include "base/linux/local_address.h"
#include "base/linux/local_socket.h"
#include "base/linux/log_queue.h"
#include "base/linux/own_disks.h"
#include "base/linux/process.h"
#include "base/linux/segment.h"
#include "base/linux/signals.h"
#include "base/linux/stream_socket.h"
#include "base/linux/uring.h"

namespace braid::base {
namespace {

uint64_t read_clock(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecond + static_cast<uint64_t>(now.tv_nsec);
}

bool membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

class LinuxThread : public Thread {
 public:
  explicit LinuxThread(std::thread thread) : thread_(std::move(thread)) {}
  ~LinuxThread() override { thread_.join(); }

 private:
  std::thread thread_;
};

/// What a reactor logs to must not make it wait.
std::shared_ptr<LogSink> without_waiting(std::shared_ptr<LogSink> sink) {
  if (sink == nullptr) sink = make_stderr_sink();
  return sink->may_block() ? make_queued_sink(std::move(sink)) : sink;
}

class LinuxHost : public Host {
 public:
  explicit LinuxHost(const LinuxHostOptions& options)
      : heavy_fence_(!options.sleeps_at_once &&
                     membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)),
        logger_(without_waiting(options.log_sink), options.log_name, options.log_level),
        executor_(options.workers_max, logger_) {
    if (!heavy_fence_ && !options.sleeps_at_once) {
      logger_.warning(
          "the kernel refuses membarrier: fences between processes cost more in every message");
    }
    // Refused where Yama is not in use, and not needed then.
    if (options.allow_peer_copy) (void)::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  }

  uint64_t now_ns() override { return read_clock(CLOCK_MONOTONIC); }
  uint64_t wall_clock_ns() override { return read_clock(CLOCK_REALTIME); }
  void random(std::span<std::byte> out) override {
    while (!out.empty()) {
      const ssize_t got = retry_interrupted([&] { return ::getrandom(out.data(), out.size(), 0); });
      BRAID_ASSERT(got > 0);  // the kernel's generator does not fail
      out = out.subspan(static_cast<size_t>(got));
    }
  }
  std::string boot_id() override { return base::boot_id(); }
  std::string host_name() override {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    return name.data();
  }
  int process_id() override { return ::getpid(); }
  uint32_t user_id() override { return ::geteuid(); }
  bool is_local_address(const std::string& ip) override { return is_linux_local_address(ip); }
  Logger& log() override { return logger_; }

  void yield() override { ::sched_yield(); }
  Result<std::unique_ptr<IoQueue>> create_io_queue() override { return UringQueue::create(*this); }

  Result<std::unique_ptr<Thread>> start_thread(std::string name,
                                               std::function<void()> body) override {
    const SignalsBlocked blocked;
    try {
      std::thread thread([name, run = std::move(body)] {
        ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
        run();
      });
      return std::unique_ptr<Thread>(std::make_unique<LinuxThread>(std::move(thread)));
    } catch (const std::system_error& failure) {
      return sys_error(failure.code().value(), fmt::format("cannot start thread {}", name));
    }
  }

  void execute(std::function<void()> work) override {
    const SignalsBlocked blocked;  // for the threads that this may start
    executor_.execute(std::move(work));
  }
  bool worker_is_idle() override { return executor_.is_idle(); }

  std::unique_ptr<Event> create_event() override {
    auto event = create_linux_event();
    if (event.ok()) return std::move(event).value();
    logger_.error("{}", event.error().message());
    return nullptr;
  }
  Result<std::unique_ptr<Event>> adopt_event(std::unique_ptr<Handle> handle) override {
    return adopt_linux_event(std::move(handle));
  }

  Result<std::unique_ptr<File>> open_beneath(const std::string& root, const std::string& name,
                                             const OpenOptions& options) override {
    return open_linux_file(root, name, options, own_disks_);
  }
  void serves_disk(const std::string& name, bool serves) override { own_disks_.set(name, serves); }

  Result<std::unique_ptr<Segment>> create_segment(size_t size_bytes,
                                                  std::string_view purpose) override {
    return segments_.create(size_bytes, purpose);
  }
  Result<std::unique_ptr<Segment>> create_published_segment(size_t size_bytes,
                                                            std::string_view purpose) override {
    return create_published_linux_segment(size_bytes, purpose);
  }
  Result<std::unique_ptr<Segment>> map_segment(std::unique_ptr<Handle> handle,
                                               size_t size_bytes) override {
    return map_linux_segment(std::move(handle), size_bytes);
  }
  Segment* find_segment(const void* address, size_t length) override {
    return segments_.find(address, length);
  }
  Result<std::unique_ptr<PeerProcess>> open_process(const PeerIdentity& identity) override {
    return open_linux_process(identity);
  }

  void heavy_fence() override {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!heavy_fence_) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      full_fence_.exchange(0, std::memory_order_seq_cst);
    }
    // The peers' fast sides rely on it once has_heavy_fence() was told: what fails for want of
    // memory is done again, never replaced by a fence of this thread alone.
    while (heavy_fence_ && !membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)) {
      BRAID_ASSERT(errno == ENOMEM || errno == EINTR);
      yield();
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  bool has_heavy_fence() override { return heavy_fence_; }

  Result<std::unique_ptr<LocalListener>> listen_local(std::string_view abstract_name) override {
    return listen_linux_local(abstract_name);
  }
  Result<std::unique_ptr<LocalSocket>> connect_local(std::string_view abstract_name) override {
    return connect_linux_local(abstract_name);
  }

  Result<std::unique_ptr<StreamListener>> listen_stream(const SocketAddress& address,
                                                        int backlog) override {
    return listen_linux_stream(address, backlog);
  }
  Result<std::unique_ptr<StreamSocket>> connect_stream(const std::string& local_ip,
                                                       const SocketAddress& peer) override {
    return connect_linux_stream(local_ip, peer);
  }
  std::optional<bool> has_link(const std::string& ip) override { return has_linux_link(ip); }
  Result<std::unique_ptr<LinkNews>> watch_links() override { return watch_linux_links(); }

 private:
  const bool heavy_fence_;  // before the log has a thread: its registration would wait 9 to 21 ms
  Logger logger_;
  // The fence is the processor's; the exchange beside it is what the thread sanitizer understands.
  std::atomic<int> full_fence_{0};
  SegmentTable segments_;
  OwnDisks own_disks_;
  Executor executor_;  // last: its threads may use all of the above
};

}  // namespace

Result<std::unique_ptr<Host>> create_linux_host(const LinuxHostOptions& options) {
  // Without it a restart of this machine, and with it the loss of unflushed writes, goes unseen.
  if (boot_id().empty())
    return make_error(Errc::kNotSupported,
                      "cannot read /proc/sys/kernel/random/boot_id: is /proc mounted?");
  make_room_for_descriptors();
  std::unique_ptr<Host> host = std::make_unique<LinuxHost>(options);
  // Shows at once what would else fail at the first reactor.
  BRAID_TRY(auto queue, host->create_io_queue());
  return host;
}

}  // namespace braid::base
