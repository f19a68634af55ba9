#include "bench/block/front_ends.h"

#include "bench/block/braid_program.h"
#include "bench/block/remote_server.h"

namespace braid::bench {
namespace {

class BraidNbdMemory : public FioTarget {
 public:
  std::string name() const override {
    return "fio nbd engine on braid nbd, unix socket, memory of its own";
  }
  std::string threads() const override {
    return "fio's job sleeps; braid nbd's reactor spins while there is work";
  }
  base::Status start(Bench& bench, uint64_t store_bytes) override {
    socket_ = bench.scratch.path("braid-nbd.sock");
    BRAID_TRY(program_,
              start_braid(bench, {bench.cpus.server},
                          {"nbd", fmt::format("bench=memory:{}", store_bytes), "--unix", socket_}));
    return base::ok_status();
  }
  std::vector<std::string> engine() const override {
    return {"--ioengine=nbd", "--uri=nbd+unix:///bench?socket=" + socket_};
  }
  std::vector<pid_t> servers() const override { return {program_->process.pid()}; }

 private:
  std::string socket_;
  std::optional<BraidProgram> program_;
};

/// A remote device of a server process with memory.
class OnRemoteDevice : public FioTarget {
 public:
  base::Status start(Bench& bench, uint64_t store_bytes) override {
    const ServeOptions options{.stores = {{kStoreExport, store_bytes}}};
    BRAID_TRY(server_, start_server(bench, options));
    return start_front_end(bench, fmt::format("127.0.0.1:{}/{}", server_->port, kStoreExport));
  }
  std::vector<pid_t> servers() const override {
    return {server_->process.pid(), program_->process.pid()};
  }

 protected:
  virtual base::Status start_front_end(Bench& bench, const std::string& target) = 0;

 private:
  std::optional<ServerProcess> server_;

 protected:
  std::optional<BraidProgram> program_;  // goes before its server
};

class BraidNbdRemote : public OnRemoteDevice {
 public:
  std::string name() const override {
    return "fio nbd engine on braid nbd, unix socket, remote device in-host";
  }
  std::string threads() const override {
    return "fio's job sleeps; the reactors of braid nbd (on either CPU) and of the server spin "
           "while there is work";
  }
  std::vector<std::string> engine() const override {
    return {"--ioengine=nbd", "--uri=nbd+unix:///bench?socket=" + socket_};
  }

 private:
  base::Status start_front_end(Bench& bench, const std::string& target) override {
    socket_ = bench.scratch.path("braid-nbd.sock");
    BRAID_TRY(program_, start_braid(bench, cpus_of(bench.cpus, Placement::kEither),
                                    {"nbd", "bench=" + target, "--unix", socket_}));
    return base::ok_status();
  }
  std::string socket_;
};

class BraidFuseLoop : public OnRemoteDevice {
 public:
  std::string name() const override { return "fio io_uring on loop on braid's FUSE file"; }
  std::string threads() const override {
    return "the kernel's workers sleep; the reactors of braid map (on either CPU) and of the "
           "server spin while there is work";
  }
  std::vector<std::string> engine() const override {
    return {"--ioengine=io_uring", "--direct=1", "--filename=" + device_};
  }

 private:
  base::Status start_front_end(Bench& bench, const std::string& target) override {
    BRAID_TRY(program_, start_braid(bench, cpus_of(bench.cpus, Placement::kEither),
                                    {"map", "--foreground", "--front-end", "fuse", target}));
    device_ = program_->ready.at("device");
    return base::ok_status();
  }
  std::string device_;
};

}  // namespace

std::unique_ptr<FioTarget> braid_nbd_memory() {
  return std::make_unique<BraidNbdMemory>();
}
std::unique_ptr<FioTarget> braid_nbd_remote() {
  return std::make_unique<BraidNbdRemote>();
}
std::unique_ptr<FioTarget> braid_fuse_loop() {
  return std::make_unique<BraidFuseLoop>();
}

}  // namespace braid::bench
