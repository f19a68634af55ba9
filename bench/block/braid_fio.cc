#include "bench/block/braid_fio.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "bench/block/braid_program.h"
#include "bench/floor/shared_pages.h"

namespace braid::bench {
namespace {

constexpr const char* kFile = "bench.img";

std::filesystem::path engine_file() {
  return program_folder().parent_path() / "lib" / "braid-fio.so";
}

/// fio is built without the sanitizers of this build, which want to be loaded first.
std::vector<std::string> sanitizer_environment() {
  const std::string runtimes = BRAID_SANITIZER_RUNTIMES;
  if (runtimes.empty()) return {};
  return {"LD_PRELOAD=" + runtimes, "ASAN_OPTIONS=detect_leaks=0"};
}

class BraidEngine : public FioTarget {
 public:
  BraidEngine(const RemoteWay& way, Backend backend, trs::ChunkGuard guard)
      : way_(way), backend_(backend), guard_(guard) {}
  std::string name() const override {
    const char* const memory =
        stores_have_huge_pages() ? "memory in huge pages" : "memory in pages of 4 KiB";
    return fmt::format(
        "fio external engine on a braid remote device, {}, {}, chunks: {}", to_string(way_.wire),
        backend_ == Backend::kFile ? "file with O_DIRECT" : memory, to_string(guard_));
  }
  std::string threads() const override {
    if (way_.poll_budget_ns == 0)
      return "one a side; both sleep (fio's side has a keeper that looks every 50 ms)";
    return "one a side; both spin, until they have found nothing for " + poll_budget() +
           " (up to 1 ms while an answer is owed), yield after each empty turn";
  }

  base::Status start(Bench& bench, uint64_t store_bytes) override {
    if (!std::filesystem::exists(engine_file())) {
      return base::make_error(base::Errc::kNotFound, "{}: not built (./run setup)",
                              engine_file().string());
    }
    ServeOptions options{.way = way_};
    options.guard = guard_;
    if (backend_ == Backend::kFile) {
      options.root = bench.scratch.path("served");
      BRAID_CHECK(make_file(options.root, store_bytes));
    } else {
      options.stores = {{kFile, store_bytes, StoreKind::kMemory, stores_have_huge_pages()}};
    }
    BRAID_TRY(server_, start_server(bench, options));
    return base::ok_status();
  }

  std::vector<std::string> engine() const override {
    return {"--ioengine=external:" + engine_file().string(),
            fmt::format("--target=127.0.0.1:{}/{}", server_->port, kFile),
            fmt::format("--wire={}", way_.wire == Wire::kTcp ? "tcp" : "auto"),
            "--poll_budget=" + poll_budget(),
            // What a disk writes into memory its reader's cache does not have: a file's does not,
            // either.
            fmt::format("--load_reads={}", backend_ == Backend::kMemory ? 1 : 0)};
  }
  std::vector<std::string> environment() const override { return sanitizer_environment(); }
  std::vector<pid_t> servers() const override { return {server_->process.pid()}; }

 private:
  std::string poll_budget() const {
    if (way_.poll_budget_ns == 0) return "0";
    return fmt::format("{}us", way_.poll_budget_ns / base::kMicrosecond);
  }
  static base::Status make_file(const std::string& folder, uint64_t bytes) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const std::string path = folder + "/" + kFile;
    const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) return base::sys_error(errno, path);
    const int result = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    ::close(fd);
    if (result != 0) return base::sys_error(result, path);
    return base::ok_status();
  }

  const RemoteWay way_;
  const Backend backend_;
  const trs::ChunkGuard guard_;
  std::optional<ServerProcess> server_;
};

}  // namespace

std::unique_ptr<FioTarget> braid_engine(const RemoteWay& way, Backend backend,
                                        trs::ChunkGuard guard) {
  return std::make_unique<BraidEngine>(way, backend, guard);
}

}  // namespace braid::bench
