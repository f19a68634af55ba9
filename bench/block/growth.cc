#include "bench/block/growth.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "bench/block/remote_server.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

constexpr int kGrowthStartMs = 120'000;
constexpr uint64_t kGrowthStoreBytes = 16 << 20;

/// All that one client has mapped.
class Mapped {
 public:
  Mapped(Growth growth, uint16_t port)
      : growth_(growth), port_(port), device_(create_device(side_, Wire::kInHost)) {}
  ~Mapped() {
    for (auto& remote : remotes_) side_.reactor->run_until_done(remote->close());
    for (auto& session : sessions_) side_.reactor->run_until_done(session->close());
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  /// Devices have names of their own: a client has each only once.
  void map_one() {
    const size_t number = remotes_.size();
    if (sessions_.empty() || growth_ == Growth::kSessions) sessions_.push_back(connect(number));
    remotes_.push_back(
        open_export(side_, *sessions_.back(), fmt::format("disk{}", number).c_str()));
  }
  base::Reactor& reactor() { return *side_.reactor; }
  bnbd::RemoteDevice& at(size_t number) { return *remotes_[number]; }

 private:
  /// Copy buffers are a program's to declare, and are not touched here.
  std::unique_ptr<bnbd::RemoteSession> connect(size_t number) {
    bnbd::RemoteSessionOptions options;
    options.transport.session_name = fmt::format("growth{}", number);
    options.transport.server = {.ip = "127.0.0.1", .port = port_};
    options.transport.reactors = {side_.reactor.get()};
    options.touch_buffers = false;
    return must(side_.reactor->run_until_done(bnbd::RemoteSession::open(*device_, options)));
  }

  const Growth growth_;
  const uint16_t port_;
  const BraidSide side_;
  const std::unique_ptr<vhca::Device> device_;
  std::vector<std::unique_ptr<bnbd::RemoteSession>> sessions_;
  std::vector<std::unique_ptr<bnbd::RemoteDevice>> remotes_;
};

/// A process's pages, those that it shares in parts.
double memory_mib(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/smaps_rollup", pid));
  for (std::string line; std::getline(in, line);) {
    uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "Pss: %lu kB", &kib) == 1) return static_cast<double>(kib) / 1024;
  }
  throw std::runtime_error(fmt::format("/proc/{}/smaps_rollup tells no Pss", pid));
}

struct Many {
  unsigned count = 1;    // devices, or sessions
  unsigned buffers = 0;  // that are read into
};

/// A server with an export for each, and `measure` in a client of it: both new in each round, as a
/// heap that has been grown once has room for the next client.
class GrowthCandidate : public Candidate {
 public:
  using Measure = Sample (*)(Mapped& mapped, Many many, pid_t server, const BlockWorkload& sizes);
  GrowthCandidate(Growth growth, Many many, Measure measure)
      : growth_(growth), many_(many), measure_(measure) {}
  std::string name() const override {
    const char* const what = growth_ == Growth::kDevices ? "devices of one session" : "sessions";
    const std::string into =
        many_.buffers > 1 ? fmt::format(", into {} buffers", many_.buffers) : std::string();
    return fmt::format("braid, {} {}{}", many_.count, what, into);
  }
  std::string threads() const override { return "one reactor a side; both spin while they work"; }

  base::Status prepare(Bench& bench) override {
    if (bench.options.quick) {
      many_.count = std::min(many_.count, 10u);
      many_.buffers = std::min(many_.buffers, 10u);
    }
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    ServeOptions options{.sessions_max = 2 * many_.count + 16};
    for (unsigned i = 0; i < many_.count; ++i)
      options.stores.push_back({fmt::format("disk{}", i), kGrowthStoreBytes, StoreKind::kNull});
    BRAID_TRY(const ServerProcess server, start_server(bench, options));
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                Mapped mapped(growth_, server.port);
                channel.send(to_json(
                    measure_(mapped, many_, server.process.pid(), block_workload(bench.options))));
              }));
    BRAID_TRY(const auto message, client.receive(kGrowthStartMs));
    BRAID_CHECK(client.wait(kGrowthStartMs));
    return sample_from_json(message);
  }

 private:
  const Growth growth_;
  Many many_;
  const Measure measure_;
};

Sample map_each(Mapped& mapped, Many many, pid_t, const BlockWorkload&) {
  std::vector<uint64_t> durations_ns;
  for (unsigned i = 0; i < many.count; ++i) {
    const uint64_t begin_ns = clock_ns();
    mapped.map_one();
    durations_ns.push_back(clock_ns() - begin_ns);
  }
  Sample sample{.latencies = latencies(durations_ns)};
  sample.value = static_cast<double>(durations_ns.back()) / 1e6;  // sorted now: the longest
  return sample;
}

/// One read at a time of this device, from where it lies into a region of its own.
class Reader {
 public:
  explicit Reader(bnbd::RemoteDevice& remote)
      : remote_(&remote), region_(must(remote.create_region(kBlockBytes))) {}

  void read(base::Reactor& reactor, uint64_t offset_bytes) {
    bool done = false;
    bnbd::BlockRequest request;
    request.op = bnbd::BlockOp::kRead;
    request.offset_bytes = offset_bytes;
    request.length_bytes = kBlockBytes;
    request.buffer = {.region = region_.get(), .address = region_->data()};
    request.context = &done;
    request.done = [](bnbd::BlockRequest& ended, base::Errc status) {
      must(status, "a read");
      *static_cast<bool*>(ended.context) = true;
    };
    remote_->submit(request);
    while (!done) {
      if (!reactor.turn()) reactor.host().yield();
    }
    use({region_->data(), kBlockBytes});
  }

 private:
  bnbd::RemoteDevice* remote_;
  std::unique_ptr<bnbd::Region> region_;
};

Sample read_some(Mapped& mapped, Many many, pid_t server, const BlockWorkload& sizes) {
  for (unsigned i = 0; i < many.count; ++i) mapped.map_one();
  const unsigned devices = std::min(many.count, many.buffers);
  std::vector<Reader> readers;
  for (unsigned i = 0; i < many.buffers; ++i)
    readers.emplace_back(mapped.at(many.count - devices + i % devices));
  Random random(2);
  const auto operation = [&] {
    Reader& reader = readers[many.buffers == 1 ? 0 : random.below(many.buffers)];
    reader.read(mapped.reactor(), random.below(kGrowthStoreBytes / kBlockBytes) * kBlockBytes);
  };
  return measure_operations(sizes.run_ms, sizes.latency_ms, server, operation);
}

Sample memory_of(Mapped& mapped, Many many, pid_t server, const BlockWorkload&) {
  const auto both = [server] { return memory_mib(server) + memory_mib(::getpid()); };
  mapped.map_one();
  const double one = both();
  for (unsigned i = 1; i < many.count; ++i) mapped.map_one();
  return {.value = both() - one};
}

}  // namespace

std::unique_ptr<Candidate> braid_map_each(Growth growth, unsigned count) {
  return std::make_unique<GrowthCandidate>(growth, Many{count}, &map_each);
}
std::unique_ptr<Candidate> braid_reads(Growth growth, unsigned count, unsigned buffers) {
  return std::make_unique<GrowthCandidate>(growth, Many{count, buffers}, &read_some);
}
std::unique_ptr<Candidate> braid_memory_of(Growth growth, unsigned count) {
  return std::make_unique<GrowthCandidate>(growth, Many{count}, &memory_of);
}

}  // namespace braid::bench
