#include "bench/peers/nbdkit.h"

#include <filesystem>

#include "bench/peers/free_port.h"

namespace braid::bench {
namespace {

constexpr int kNbdkitStartMs = 10'000;
constexpr int kAttempts = 3;

class NbdkitMemory : public FioTarget {
 public:
  NbdkitMemory(Socket socket, Placement placement) : socket_(socket), placement_(placement) {}
  std::string name() const override {
    return std::string("fio nbd engine on nbdkit memory, ") +
           (socket_ == Socket::kUnix ? "unix socket" : "TCP loopback");
  }
  std::string threads() const override {
    return placement_ == Placement::kServer
               ? "fio's job, nbdkit's default threads; all sleep"
               : "fio's job, nbdkit's default threads (on either CPU); all sleep";
  }

  base::Status start(Bench& bench, uint64_t store_bytes) override {
    // Another program may take the port between the choice and its use.
    for (int attempt = 1;; ++attempt) {
      const base::Status status = start_once(bench, store_bytes);
      if (status.ok() || socket_ == Socket::kUnix || attempt == kAttempts) return status;
    }
  }

  std::vector<std::string> engine() const override { return {"--ioengine=nbd", "--uri=" + uri_}; }
  std::vector<pid_t> servers() const override { return {server_->pid()}; }

 private:
  base::Status start_once(Bench& bench, uint64_t store_bytes) {
    const std::string ready = bench.scratch.path("nbdkit.pid");
    std::filesystem::remove(ready);
    Command command{.arguments = {"nbdkit", "-f", "-P", ready},
                    .cpus = cpus_of(bench.cpus, placement_),
                    .output_file = bench.scratch.path("nbdkit.out")};
    const auto add = [&](std::initializer_list<std::string> more) {
      command.arguments.insert(command.arguments.end(), more);
    };
    if (socket_ == Socket::kUnix) {
      const std::string path = bench.scratch.path("nbdkit.sock");
      std::filesystem::remove(path);
      uri_ = "nbd+unix:///?socket=" + path;
      add({"-U", path});
    } else {
      BRAID_TRY(const uint16_t port, free_port());
      uri_ = fmt::format("nbd://127.0.0.1:{}/", port);
      add({"-i", "127.0.0.1", "-p", std::to_string(port)});
    }
    add({"memory", std::to_string(store_bytes)});
    BRAID_TRY(server_, Process::run(bench.interrupts, command));
    // nbdkit writes the file once it accepts connections.
    for (int waited_ms = 0; !std::filesystem::exists(ready); waited_ms += 5) {
      if (waited_ms >= kNbdkitStartMs || !server_->running()) {
        return base::make_error(base::Errc::kTimedOut, "nbdkit did not start: {}",
                                last_lines(command.output_file));
      }
      BRAID_CHECK(bench.interrupts.pause_ms(5));
    }
    return base::ok_status();
  }

  const Socket socket_;
  const Placement placement_;
  std::string uri_;
  std::optional<Process> server_;
};

}  // namespace

std::unique_ptr<FioTarget> nbdkit_memory(Socket socket, Placement placement) {
  return std::make_unique<NbdkitMemory>(socket, placement);
}

}  // namespace braid::bench
