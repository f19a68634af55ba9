#include "bench/block/remote_read.h"

#include "bench/braid_side.h"
#include "bench/workload.h"
#include "bnbd/remote.h"
#include "bnbd/server.h"
#include "vhca/soft_device.h"

namespace braid::bench {
namespace {

constexpr int kStartMs = 60'000;
constexpr int kFillMs = 120'000;
constexpr unsigned kBlocksCompared = 8;
constexpr const char* kExport = "bench";

void serve(Channel& channel, uint64_t store_bytes) {
  const BraidSide side;
  const auto device = must(vhca::create_soft_device(*side.host, *side.reactor, {}));
  bnbd::ExportServerOptions options;
  options.named.push_back(
      {.kind = bnbd::NamedExport::Kind::kMemory, .name = kExport, .size_bytes = store_bytes});
  options.transport.listen = {.ip = "127.0.0.1", .port = 0};
  options.transport.reactors = {side.reactor.get()};
  const auto server = must(bnbd::ExportServer::create(*device, options));
  channel.send({{"port", server->address().port}});
  side.reactor->run();
}

// A mapped device in the client's process.
class Client {
 public:
  Client(uint16_t port, size_t buffer_bytes) {
    device_ = must(vhca::create_soft_device(*side_.host, *side_.reactor, {}));
    bnbd::RemoteSessionOptions options;
    options.transport.session_name = "bench";
    options.transport.server = {.ip = "127.0.0.1", .port = port};
    options.transport.reactors = {side_.reactor.get()};
    session_ = must(side_.reactor->run_until_done(bnbd::RemoteSession::open(*device_, options)));
    bnbd::RemoteDeviceOptions remote_options;
    remote_options.name = kExport;
    remote_ = must(side_.reactor->run_until_done(session_->open_device(remote_options)));
    region_ = must(remote_->create_region(buffer_bytes));
    request_.buffer = {.region = region_.get(), .address = region_->data()};
    request_.context = this;
    request_.done = [](bnbd::BlockRequest& request, base::Errc status) {
      static_cast<Client*>(request.context)->request_done(status);
    };
  }
  ~Client() {
    region_.reset();
    side_.reactor->run_until_done(remote_->close());
    side_.reactor->run_until_done(session_->close());
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void fill() {
    request_.op = bnbd::BlockOp::kWrite;
    request_.length_bytes = kFillBytes;
    for (uint64_t at = 0; at < size(); at += kFillBytes) {
      fill_random({region_->data(), kFillBytes}, at);
      request_.offset_bytes = at;
      end_ns_ = 0;
      submit_and_run();
    }
  }

  Sample read(const BlockWorkload& work, pid_t server) {
    request_.op = bnbd::BlockOp::kRead;
    request_.length_bytes = kBlockBytes;
    const CpuMeter meter({server});
    Sample sample{.value = read_for(work.run_ms)};
    sample.cpu_ns = static_cast<double>(meter.used_ns()) / static_cast<double>(operations_);
    reserve_touched(durations_ns_, kTimedMax);
    read_for(work.latency_ms);
    sample.latencies = latencies(durations_ns_);
    compare_some();
    return sample;
  }

 private:
  uint64_t size() const { return remote_->info().size_bytes; }
  bool times_each() const { return durations_ns_.capacity() > 0; }

  /// Reads per second. The reactor runs as in any program: it spins, yields and sleeps as it likes.
  double read_for(unsigned duration_ms) {
    operations_ = 0;
    const uint64_t start_ns = clock_ns();
    end_ns_ = start_ns + duration_ms * base::kMillisecond;
    request_.offset_bytes = next_offset();
    submit_and_run();
    return static_cast<double>(operations_) * 1e9 / static_cast<double>(clock_ns() - start_ns);
  }
  // Not timed: that what was read so fast is what the store holds.
  void compare_some() {
    for (unsigned i = 0; i < kBlocksCompared; ++i) {
      fill_random({region_->data(), kBlockBytes}, i);
      read_for(0);
      if (is_of_store({region_->data(), kBlockBytes}, request_.offset_bytes)) continue;
      throw std::runtime_error(
          fmt::format("the block at {} is not what was written there", request_.offset_bytes));
    }
  }
  uint64_t next_offset() { return random_.below(size() / kBlockBytes) * kBlockBytes; }
  void submit_and_run() {
    submit();
    side_.reactor->run();
    must(status_, "a request to the server");
  }
  void submit() {
    if (times_each()) submitted_ns_ = clock_ns();
    remote_->submit(request_);
  }
  void request_done(base::Errc status) {
    status_ = status;
    ++operations_;
    use({region_->data(), kBlockBytes});
    uint64_t now_ns = side_.reactor->now_ns();
    if (times_each()) {
      now_ns = clock_ns();
      durations_ns_.push_back(now_ns - submitted_ns_);
    }
    if (status != base::Errc::kOk || now_ns >= end_ns_ || durations_ns_.size() == kTimedMax) {
      side_.reactor->stop();
      return;
    }
    request_.offset_bytes = next_offset();
    submit();
  }

  BraidSide side_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<bnbd::RemoteSession> session_;
  std::unique_ptr<bnbd::RemoteDevice> remote_;
  std::unique_ptr<bnbd::Region> region_;
  bnbd::BlockRequest request_;
  Random random_{2};
  base::Errc status_ = base::Errc::kOk;
  uint64_t operations_ = 0;
  uint64_t end_ns_ = 0;
  uint64_t submitted_ns_ = 0;
  std::vector<uint64_t> durations_ns_;  // empty, without memory: operations are only counted
};

class BraidRemoteRead : public Candidate {
 public:
  std::string name() const override { return "braid remote device, in-host software HCA"; }
  std::string threads() const override {
    return "one reactor a side; both spin, yield after each empty turn";
  }

  base::Status prepare(Bench& bench) override {
    const uint64_t store_bytes = block_workload(bench.options).store_bytes;
    BRAID_TRY(server_, Process::call(bench.interrupts, bench.cpus.server,
                                     [&](Channel& channel) { serve(channel, store_bytes); }));
    BRAID_TRY(const auto ready, server_->receive(kStartMs));
    port_ = ready.at("port");
    BRAID_TRY(Process filler,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                Client(port_, kFillBytes).fill();
                channel.send({{"filled", true}});
              }));
    BRAID_TRY(const auto filled, filler.receive(kFillMs));
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    const BlockWorkload work = block_workload(bench.options);
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                channel.send(to_json(Client(port_, kBlockBytes).read(work, server_->pid())));
              }));
    BRAID_TRY(const auto message, client.receive(static_cast<int>(work.run_ms) + 60'000));
    return sample_from_json(message);
  }

 private:
  std::optional<Process> server_;
  uint16_t port_ = 0;
};

}  // namespace

std::unique_ptr<Candidate> braid_remote_read() {
  return std::make_unique<BraidRemoteRead>();
}

}  // namespace braid::bench
