#include "bench/block/remote_client.h"

#include <unistd.h>

#include <algorithm>

#include "bnbd/server.h"
#include "vhca/soft_device.h"

namespace braid::bench {
namespace {

constexpr unsigned kBlocksCompared = 8;
constexpr unsigned kLooksApartUs = 2000;
constexpr uint64_t kLateMax = 3;

std::unique_ptr<bnbd::RemoteSession> connect(const BraidSide& side, vhca::Device& device,
                                             uint16_t port, const std::string& name = "bench") {
  bnbd::RemoteSessionOptions options;
  options.transport.session_name = name;
  options.transport.server = {.ip = "127.0.0.1", .port = port};
  options.transport.reactors = {side.reactor.get()};
  return must(side.reactor->run_until_done(bnbd::RemoteSession::open(device, options)));
}

std::unique_ptr<bnbd::RemoteDevice> open_export(const BraidSide& side, bnbd::RemoteSession& session,
                                                const char* name) {
  bnbd::RemoteDeviceOptions options;
  options.name = name;
  return must(side.reactor->run_until_done(session.open_device(options)));
}

/// As many as the server takes, each sent again when it is answered.
class Clears {
 public:
  explicit Clears(bnbd::RemoteDevice& remote)
      : remote_(remote), requests_(remote.info().queue_depth) {
    uint64_t offset_bytes = 0;
    for (bnbd::BlockRequest& request : requests_) {
      request.op = bnbd::BlockOp::kWriteZeroes;
      request.no_unmap = true;  // it is all written, whatever was there
      request.length_bytes = kFillBytes;
      request.offset_bytes = offset_bytes % kOtherBytes;
      offset_bytes += kFillBytes;
      request.context = this;
      request.done = [](bnbd::BlockRequest& done, base::Errc status) {
        auto& all = *static_cast<Clears*>(done.context);
        must(status, "a clear at the server");
        ++all.answered_;
        all.remote_.submit(done);
      };
      remote.submit(request);
    }
  }
  uint64_t count() const { return requests_.size(); }
  uint64_t answered() const { return answered_; }
  uint64_t answered_since_last_look() { return answered_ - std::exchange(looked_at_, answered_); }

 private:
  bnbd::RemoteDevice& remote_;
  std::vector<bnbd::BlockRequest> requests_;
  uint64_t answered_ = 0;
  uint64_t looked_at_ = 0;
};

}  // namespace

uint64_t poll_budget_ns(uint64_t pause_ns) {
  return std::max(base::Reactor::Options().poll_budget_ns, 4 * pause_ns);
}

void serve_memory(Channel& channel, uint64_t store_bytes, uint64_t pause_ns) {
  const BraidSide side(poll_budget_ns(pause_ns));
  const auto device = must(vhca::create_soft_device(*side.host, *side.reactor, {}));
  bnbd::ExportServerOptions options;
  using Kind = bnbd::NamedExport::Kind;
  options.named.push_back({.kind = Kind::kMemory, .name = kStoreExport, .size_bytes = store_bytes});
  options.named.push_back({.kind = Kind::kMemory, .name = kOtherExport, .size_bytes = kOtherBytes});
  options.transport.listen = {.ip = "127.0.0.1", .port = 0};
  options.transport.reactors = {side.reactor.get()};
  const auto server = must(bnbd::ExportServer::create(*device, options));
  channel.send({{"port", server->address().port}});
  side.reactor->run();
}

void clear_without_end(Channel& channel, uint16_t port) {
  const BraidSide side(0);
  const auto device = must(vhca::create_soft_device(*side.host, *side.reactor, {}));
  const auto session = connect(side, *device, port);
  const auto remote = open_export(side, *session, kOtherExport);
  Clears clears(*remote);
  const auto look = [&] {
    while (side.reactor->turn()) continue;
    ::usleep(kLooksApartUs);
    return clears.answered_since_last_look() < clears.count() / 4 * 3;  // some wait for permits
  };
  while (clears.answered() < 2 * clears.count()) (void)look();
  channel.send({{"flows", true}});
  for (uint64_t looks = 1, late = 0;; ++looks) {
    if (look()) continue;
    // The machine may have kept it from looking a few times.
    if (++late > kLateMax + looks / 100)
      throw std::runtime_error("the server had too little to clear");
  }
}

void idle_sessions(Channel& channel, uint16_t port, unsigned count) {
  const BraidSide side(0);
  const auto device = must(vhca::create_soft_device(*side.host, *side.reactor, {}));
  std::vector<std::unique_ptr<bnbd::RemoteSession>> sessions;
  for (unsigned i = 0; i < count; ++i)
    sessions.push_back(connect(side, *device, port, fmt::format("idle{}", i)));
  channel.send({{"open", true}});
  side.reactor->run();
}

RemoteClient::RemoteClient(uint16_t port, size_t buffer_bytes, uint64_t pause_ns)
    : pause_ns_(pause_ns), side_(poll_budget_ns(pause_ns)) {
  device_ = must(vhca::create_soft_device(*side_.host, *side_.reactor, {}));
  session_ = connect(side_, *device_, port);
  remote_ = open_export(side_, *session_, kStoreExport);
  region_ = must(remote_->create_region(buffer_bytes));
  request_.buffer = {.region = region_.get(), .address = region_->data()};
  request_.context = this;
  request_.done = [](bnbd::BlockRequest& request, base::Errc status) {
    static_cast<RemoteClient*>(request.context)->request_done(status);
  };
}

RemoteClient::~RemoteClient() {
  region_.reset();
  side_.reactor->run_until_done(remote_->close());
  side_.reactor->run_until_done(session_->close());
}

void RemoteClient::fill() {
  request_.op = bnbd::BlockOp::kWrite;
  request_.length_bytes = kFillBytes;
  for (uint64_t at = 0; at < size(); at += kFillBytes) {
    fill_random({region_->data(), kFillBytes}, at);
    request_.offset_bytes = at;
    end_ns_ = 0;
    submit_and_run();
  }
}

Sample RemoteClient::read(const BlockWorkload& work, pid_t server) {
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

/// Reads per second. The reactor runs as in any program: it spins, yields and sleeps as it likes.
double RemoteClient::read_for(unsigned duration_ms) {
  operations_ = 0;
  const uint64_t start_ns = clock_ns();
  end_ns_ = start_ns + duration_ms * base::kMillisecond;
  request_.offset_bytes = next_offset();
  submit_and_run();
  return static_cast<double>(operations_) * 1e9 / static_cast<double>(clock_ns() - start_ns);
}

// Not timed: that what was read so fast is what the store holds.
void RemoteClient::compare_some() {
  for (unsigned i = 0; i < kBlocksCompared; ++i) {
    fill_random({region_->data(), kBlockBytes}, i);
    read_for(0);
    if (is_of_store({region_->data(), kBlockBytes}, request_.offset_bytes)) continue;
    throw std::runtime_error(
        fmt::format("the block at {} is not what was written there", request_.offset_bytes));
  }
}

void RemoteClient::submit_and_run() {
  submit();
  side_.reactor->run();
  must(status_, "a request to the server");
}

void RemoteClient::submit() {
  if (times_each()) submitted_ns_ = clock_ns();
  remote_->submit(request_);
}

void RemoteClient::request_done(base::Errc status) {
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
  if (pause_ns_ > 0) return side_.reactor->schedule_after(pause_, pause_ns_);
  submit();
}

void RemoteClient::pause_over(base::Timer& timer) {
  static_cast<RemoteClient*>(timer.context)->submit();
}

}  // namespace braid::bench
