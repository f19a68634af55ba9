#include "bench/block/failover.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "bench/block/load.h"
#include "bench/block/remote_client.h"
#include "reach/device_events.h"
#include "vhca/port_faults.h"

namespace braid::bench {
namespace {

constexpr int kFailoverStartMs = 60'000;
constexpr int kRunMs = 120'000;
constexpr uint64_t kStoreBytes = 64 << 20;
constexpr unsigned kPorts = 2;
BlockWork work_of(const Failover& failover) {
  return {.write = failover.write, .depth = 32};
}

constexpr uint64_t kBeforeNs = 50 * base::kMillisecond;  // of load, both paths up
constexpr uint64_t kAfterNs = 50 * base::kMillisecond;   // of load when the path has been left
constexpr uint64_t kFoundWithinNs = 10 * base::kSecond;
constexpr unsigned kLoadMs = 60'000;  // ended before by each fault's script
constexpr uint64_t kMendedWithinNs = 30 * base::kSecond;
constexpr uint64_t kLookNs = 5 * base::kMillisecond;

uint64_t by_heartbeats_ns(const Failover& failover) {
  return failover.heartbeat.interval_ns * (failover.heartbeat.missed_max + 1);
}

uint64_t by_adapter_ns() {
  const vhca::ConnectParameters usual;
  return (uint64_t{4096} << usual.ack_timeout) * (usual.retry_count + 1u);
}

double in_ms(uint64_t ns) {
  return static_cast<double>(ns) / base::kMillisecond;
}

uint64_t sum_of(const trs::PathStatus& path, uint64_t trs::ConnectionStatistics::*count) {
  return std::accumulate(
      path.connections.begin(), path.connections.end(), uint64_t{0},
      [=](uint64_t sum, const trs::ConnectionStatistics& each) { return sum + each.*count; });
}

uint64_t requests_by(const trs::PathStatus& path) {
  return sum_of(path, &trs::ConnectionStatistics::reads) +
         sum_of(path, &trs::ConnectionStatistics::writes);
}

uint64_t under_way_by(const trs::PathStatus& path) {
  return sum_of(path, &trs::ConnectionStatistics::in_flight);
}

class FailoverClient {
 public:
  FailoverClient(uint16_t server_port, const Failover& failover) : failover_(failover) {
    for (auto& device : devices_) device = create_device(side_, failover.wire, true);
    const vhca::Address server{.ip = "127.0.0.1", .port = server_port};
    bnbd::RemoteSessionOptions options;
    options.transport.session_name = "failover";
    options.transport.server = server;
    options.transport.reactors = {side_.reactor.get()};
    options.transport.heartbeat = failover.heartbeat;
    options.paths = {{.device = devices_[1].get(), .server = server}};
    session_ = must(
        side_.reactor->run_until_done(bnbd::RemoteSession::open(*devices_[0], std::move(options))));
    for (unsigned port = 0; port < kPorts; ++port) {
      events_[port].emplace(*side_.reactor, *devices_[port],
                            [this](const vhca::Device& down, uint8_t its_port) {
                              const vhca::Device* const adapter[] = {&down};
                              session_->link_down(adapter, its_port);
                            });
    }
    remote_ = open_export(side_, *session_, kStoreExport);
    load_.emplace(*side_.reactor, *remote_, work_of(failover_));
    load_->time_each();
  }
  ~FailoverClient() {
    load_.reset();
    side_.reactor->run_until_done(remote_->close());
    side_.reactor->run_until_done(session_->close());
  }
  FailoverClient(const FailoverClient&) = delete;
  FailoverClient& operator=(const FailoverClient&) = delete;

  /// Of so many faults, at one port and the other in turn.
  Sample run(unsigned faults) {
    uint64_t longest_ns = 0;
    for (unsigned i = 0; i < faults; ++i) longest_ns = std::max(longest_ns, one_fault(i % kPorts));
    Sample sample{.value = in_ms(longest_ns), .latencies = load_->timed()};
    load_->compare_some();
    return sample;
  }

 private:
  uint64_t one_fault(unsigned port) {
    side_.reactor->run_until_done(all_up());
    if (!wrong_.empty()) throw std::runtime_error(wrong_);
    side_.reactor->spawn(fail_and_mend(port));
    load_->run_for(kLoadMs);
    if (!wrong_.empty()) throw std::runtime_error(wrong_);
    return load_->longest_ns();
  }

  base::Task<void> all_up() {
    const uint64_t begin_ns = side_.reactor->now_ns();
    while (side_.reactor->now_ns() - begin_ns < kMendedWithinNs) {
      const std::vector<trs::PathStatus> paths = session_->paths();
      if (std::all_of(paths.begin(), paths.end(),
                      [](const trs::PathStatus& path) { return path.connected; }))
        co_return;
      co_await side_.reactor->sleep_ns(kLookNs);
    }
    wrong_ = "a path did not come back: " + session_->explain();
  }

  /// Runs beside the load, and ends it.
  base::Task<void> fail_and_mend(unsigned port) {
    co_await side_.reactor->sleep_ns(kBeforeNs);
    // On a loaded machine all may go by the other for a while, as it answers sooner.
    const uint64_t since_ns = side_.reactor->now_ns();
    while (under_way_by(session_->paths()[port]) == 0 &&
           side_.reactor->now_ns() - since_ns < kMendedWithinNs) {
      co_await side_.reactor->sleep_ns(kLookNs);
    }
    const uint64_t taken = session_->paths()[port].failed_over;
    const bool down = failover_.fault == PortFault::kLinkDown;
    set_faults(port, {.lose_sent = !down, .lose_received = !down, .down = down});
    const uint64_t failed_ns = side_.reactor->now_ns();
    std::vector<trs::PathStatus> found = session_->paths();
    // How long it takes is what the longest I/O tells.
    while (found[port].connected && side_.reactor->now_ns() - failed_ns < kFoundWithinNs) {
      co_await side_.reactor->sleep_ns(kLookNs);
      found = session_->paths();
    }
    co_await side_.reactor->sleep_ns(kAfterNs);
    const std::vector<trs::PathStatus> later = session_->paths();
    const unsigned other = 1 - port;
    if (found[port].connected) {
      wrong_ = fmt::format("port {} failed, and the path by it is still connected", port);
    } else if (later[port].failed_over == taken) {
      wrong_ = fmt::format("when port {} failed nothing was under way there", port);
    } else if (requests_by(later[other]) == requests_by(found[other])) {
      wrong_ = fmt::format("when port {} had failed nothing went by the other", port);
    }
    set_faults(port, {});
    load_->finish();
  }

  void set_faults(unsigned port, const vhca::PortFaults& faults) {
    const base::Status set = vhca::set_port_faults(*devices_[port], 1, faults);
    if (!set.ok()) wrong_ = set.error().message();
  }

  const Failover failover_;
  BraidSide side_;
  std::array<std::unique_ptr<vhca::Device>, kPorts> devices_;
  std::unique_ptr<bnbd::RemoteSession> session_;
  std::array<std::optional<reach::DeviceEvents>, kPorts> events_;
  std::unique_ptr<bnbd::RemoteDevice> remote_;
  std::optional<Load> load_;
  std::string wrong_;  // with what happened; empty: nothing
};

class BraidFailover : public Candidate {
 public:
  explicit BraidFailover(const Failover& failover) : failover_(failover) {}
  std::string name() const override {
    return fmt::format("braid, {} under way by two paths, {}", to_string(work_of(failover_)),
                       to_string(failover_.wire));
  }
  std::string threads() const override {
    return "one reactor a side; both spin, yield after each empty turn";
  }

  base::Status prepare(Bench& bench) override {
    BRAID_TRY(server_, start_server(bench, {.stores = {{kStoreExport, kStoreBytes}},
                                            .way = {.wire = failover_.wire},
                                            .port_faults = true}));
    BRAID_TRY(Process filler, Process::call(bench.interrupts, bench.cpus.client,
                                            [&](Channel& channel) { fill(channel); }));
    BRAID_TRY(const auto filled, filler.receive(kFailoverStartMs));
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    const unsigned faults = bench.options.quick ? 1 : bench.options.brief ? 2 : 6;
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                channel.send(to_json(FailoverClient(server_->port, failover_).run(faults)));
              }));
    BRAID_TRY(const auto message, client.receive(kRunMs));
    return sample_from_json(message);
  }

 private:
  void fill(Channel& channel) const {
    RemoteClient(server_->port, {.wire = failover_.wire},
                 {.write = true, .block_bytes = kFillBytes})
        .fill();
    channel.send({{"filled", true}});
  }

  const Failover failover_;
  std::optional<ServerProcess> server_;
};

}  // namespace

uint64_t detection_ns(const Failover& failover) {
  if (failover.fault == PortFault::kLinkDown) return 0;
  return std::min(by_heartbeats_ns(failover), by_adapter_ns());
}

std::string detection_text(const Failover& failover) {
  if (failover.fault == PortFault::kLinkDown) return "the port's event tells at once";
  return fmt::format(
      "found in {:.0f} ms at most: heartbeats take {:.0f} ms ({:.0f} ms, {} missed), "
      "the adapter's tries {:.0f} ms",
      in_ms(detection_ns(failover)), in_ms(by_heartbeats_ns(failover)),
      in_ms(failover.heartbeat.interval_ns), failover.heartbeat.missed_max, in_ms(by_adapter_ns()));
}

std::unique_ptr<Candidate> braid_failover(const Failover& failover) {
  return std::make_unique<BraidFailover>(failover);
}

}  // namespace braid::bench
