#include "bench/peers/qemu_fuse.h"

#include <sys/mount.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace braid::bench {
namespace {

constexpr int kQemuStartMs = 10'000;
constexpr int kQemuLookMs = 5;

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// A program's first line of output, once it has ended well.
base::Result<std::string> line_of(Bench& bench, std::vector<std::string> arguments) {
  const Command command{.arguments = std::move(arguments),
                        .cpus = {bench.cpus.server},
                        .output_file = bench.scratch.path("losetup.out")};
  // A program's output is appended, and what another one said is not this one's.
  std::error_code error;
  std::filesystem::remove(command.output_file, error);
  BRAID_TRY(Process process, Process::run(bench.interrupts, command));
  const base::Status status = process.wait(kQemuStartMs);
  if (!status.ok()) {
    return status.error().with("{}: {}", command.arguments.front(),
                               last_lines(command.output_file));
  }
  return first_line(command.output_file);
}

/// What is written and detached must be a device on that file, and nobody else's.
base::Status check_is_of(const std::string& device, const std::string& file) {
  const std::string name = std::filesystem::path(device).filename();
  const std::string of = first_line("/sys/block/" + name + "/loop/backing_file");
  if (of == file) return base::ok_status();
  return base::make_error(base::Errc::kInvalid, "{} is a device on \"{}\", not on {}", device, of,
                          file);
}

class QemuFuseLoop : public FioTarget {
 public:
  ~QemuFuseLoop() override {
    if (!device_.empty()) (void)line_of(*bench_, {"losetup", "-d", device_});
    if (daemon_) {  // which unmounts when it is asked to end, not when it is killed
      ::kill(daemon_->pid(), SIGTERM);
      (void)daemon_->wait(kQemuStartMs);
      daemon_.reset();
      (void)::umount2(file_.c_str(), MNT_DETACH);  // if it did not
    }
    std::error_code error;
    if (!image_.empty()) std::filesystem::remove(image_, error);
  }
  std::string name() const override {
    return "fio io_uring on loop on qemu-storage-daemon's FUSE file, image in /dev/shm";
  }
  std::string threads() const override {
    return "the daemon's (on either CPU) and the kernel's; all sleep";
  }

  base::Status start(Bench& bench, uint64_t store_bytes) override {
    bench_ = &bench;
    image_ = fmt::format("/dev/shm/braid-bench-{}.img", ::getpid());
    std::ofstream(image_).close();
    std::error_code error;
    std::filesystem::resize_file(image_, store_bytes, error);
    if (error) return base::make_error(base::Errc::kIo, "{}: {}", image_, error.message());
    file_ = bench.scratch.path("qemu-export");
    std::ofstream(file_).close();
    const Command command{
        .arguments = {"qemu-storage-daemon", "--blockdev",
                      "driver=file,node-name=image,filename=" + image_, "--export",
                      "type=fuse,id=image,node-name=image,mountpoint=" + file_ + ",writable=on"},
        .cpus = cpus_of(bench.cpus, Placement::kEither),
        .output_file = bench.scratch.path("qemu.out")};
    BRAID_TRY(daemon_, Process::run(bench.interrupts, command));
    // It is there once the file has the image's size.
    for (int waited_ms = 0; std::filesystem::file_size(file_, error) != store_bytes;
         waited_ms += kQemuLookMs) {
      if (waited_ms >= kQemuStartMs || !daemon_->running()) {
        return base::make_error(base::Errc::kTimedOut, "qemu-storage-daemon did not start: {}",
                                last_lines(command.output_file));
      }
      BRAID_CHECK(bench.interrupts.pause_ms(kQemuLookMs));
    }
    BRAID_TRY(std::string device,
              line_of(bench, {"losetup", "-f", "--show", "--direct-io=on", file_}));
    BRAID_CHECK(check_is_of(device, file_));
    device_ = std::move(device);
    return base::ok_status();
  }
  std::vector<std::string> engine() const override {
    return {"--ioengine=io_uring", "--direct=1", "--filename=" + device_};
  }
  std::vector<pid_t> servers() const override { return {daemon_->pid()}; }

 private:
  Bench* bench_ = nullptr;
  std::string image_, file_, device_;
  std::optional<Process> daemon_;
};

}  // namespace

std::unique_ptr<FioTarget> qemu_fuse_loop() {
  return std::make_unique<QemuFuseLoop>();
}

}  // namespace braid::bench
