// braid-profile: the same 4 KiB reads or writes again and again, client and server in one thread,
// so that an instruction counter sees one I/O through all layers and nothing else
// (scripts/profile, docs/performance.md). It says nothing about time. Linux only.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdarg>
#include <deque>

#include "bench/braid_side.h"
#include "bench/workload.h"
#include "bnbd/remote.h"
#include "bnbd/server.h"
#include "vhca/soft_device.h"

// Valgrind 3.19 does not know pidfd_open. Here the only peer is this process itself, which lives:
// a pipe to which nobody writes says the same. Everything else goes to the kernel.
extern "C" long syscall(long number, ...) noexcept {  // NOLINT: libc's
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& each : a) each = va_arg(list, long);
  va_end(list);
  if (number == SYS_pidfd_open && RUNNING_ON_VALGRIND != 0) {
    int ends[2];
    return ::pipe2(ends, O_CLOEXEC) == 0 ? ends[0] : -1;
  }
  long result = 0;
  register long r10 asm("r10") = a[3];
  register long r8 asm("r8") = a[4];
  register long r9 asm("r9") = a[5];
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (result >= -4095 && result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

namespace {

using namespace braid;  // NOLINT: a program's only file

constexpr const char* kExport = "profile";
constexpr uint64_t kStoreBytes = 16 << 20;

/// Both ends, each with its device and reactor, which take their turns one after the other.
class BothEnds {
 public:
  BothEnds() {
    server_device_ = bench::must(vhca::create_soft_device(*server_.host, *server_.reactor));
    client_device_ = bench::must(vhca::create_soft_device(*client_.host, *client_.reactor));
    bnbd::ExportServerOptions serve;
    serve.named.push_back(
        {.kind = bnbd::NamedExport::Kind::kMemory, .name = kExport, .size_bytes = kStoreBytes});
    serve.transport.listen = {.ip = "127.0.0.1", .port = 0};
    serve.transport.reactors = {server_.reactor.get()};
    exports_ = bench::must(bnbd::ExportServer::create(*server_device_, serve));
    bnbd::RemoteSessionOptions options;
    options.transport.session_name = "profile";
    options.transport.server = exports_->address();
    options.transport.reactors = {client_.reactor.get()};
    session_ = bench::must(run(bnbd::RemoteSession::open(*client_device_, options)));
    bnbd::RemoteDeviceOptions device;
    device.name = kExport;
    remote_ = bench::must(run(session_->open_device(device)));
  }
  ~BothEnds() {
    run(remote_->close());
    run(session_->close());
    (void)run(exports_->stop());
  }
  BothEnds(const BothEnds&) = delete;
  BothEnds& operator=(const BothEnds&) = delete;

  bnbd::RemoteDevice& remote() { return *remote_; }
  void turn() {
    client_.reactor->turn();
    server_.reactor->turn();
  }

 private:
  template <typename T>
  T run(base::Task<T> task) {
    task.start();
    while (!task.done()) turn();
    return task.take();
  }

  bench::BraidSide server_, client_;
  std::unique_ptr<vhca::Device> server_device_, client_device_;
  std::unique_ptr<bnbd::ExportServer> exports_;
  std::unique_ptr<bnbd::RemoteSession> session_;
  std::unique_ptr<bnbd::RemoteDevice> remote_;
};

struct Job {
  BothEnds& ends;
  uint64_t left = 0;  // still to be submitted
  uint64_t open = 0;
  bench::Random random{2};

  void submit(bnbd::BlockRequest& request) {
    --left;
    ++open;
    request.offset_bytes = random.below(kStoreBytes / bench::kBlockBytes) * bench::kBlockBytes;
    ends.remote().submit(request);
  }
};

void run_all(Job& job, std::deque<bnbd::BlockRequest>& requests) {
  for (bnbd::BlockRequest& request : requests) {
    if (job.left > 0) job.submit(request);
  }
  while (job.open > 0) job.ends.turn();
}

void profile(const bench::BlockWork& work, uint64_t count) {
  BothEnds ends;
  const auto region = bench::must(ends.remote().create_region(work.depth * bench::kBlockBytes));
  Job job{.ends = ends};
  std::deque<bnbd::BlockRequest> requests(work.depth);
  std::byte* place = region->data();
  for (bnbd::BlockRequest& request : requests) {
    request.op = work.write ? bnbd::BlockOp::kWrite : bnbd::BlockOp::kRead;
    request.length_bytes = bench::kBlockBytes;
    request.buffer = {.region = region.get(), .address = place};
    place += bench::kBlockBytes;
    request.context = &job;
    request.done = [](bnbd::BlockRequest& done, base::Errc status) {
      bench::must(status, "a request to the server");
      auto& all = *static_cast<Job*>(done.context);
      --all.open;
      if (all.left > 0) all.submit(done);
    };
  }
  constexpr uint64_t kWarmUp = 1000;
  job.left = kWarmUp;
  run_all(job, requests);
  job.left = count;
  CALLGRIND_TOGGLE_COLLECT;
  run_all(job, requests);
  CALLGRIND_TOGGLE_COLLECT;
  fmt::print("{} of {} done\n", count, to_string(work));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs I/O through both ends in one thread, for an instruction counter.",
               "braid-profile"};
  bench::BlockWork work;
  uint64_t count = 10'000;
  app.add_flag("--write", work.write, "writes, not reads");
  app.add_option("--depth", work.depth, "requests at a time")->check(CLI::Range(1, 128));
  app.add_option("--count", count, "requests counted")->check(CLI::Range(1, 10'000'000));
  CLI11_PARSE(app, argc, argv);
  try {
    profile(work, count);
  } catch (const std::exception& e) {
    fmt::print(stderr, "braid-profile: {}\n", e.what());
    return 1;
  }
  return 0;
}
