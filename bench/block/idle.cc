#include "bench/block/idle.h"

#include "bench/block/remote_server.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

constexpr int kIdleStartMs = 60'000;
constexpr uint64_t kIdleStoreBytes = 1 << 20;

std::string export_name(unsigned index) {
  return fmt::format("disk{}", index);
}

class BraidIdle : public Candidate {
 public:
  explicit BraidIdle(unsigned devices) : devices_(devices) {}
  std::string name() const override {
    return fmt::format("braid, {} remote devices of one server", devices_);
  }
  std::string threads() const override { return "one reactor a side; both sleep"; }

  base::Status prepare(Bench& bench) override {
    std::vector<Store> stores;
    for (unsigned i = 0; i < devices_; ++i) stores.push_back({export_name(i), kIdleStoreBytes});
    BRAID_TRY(server_, start_server(bench, {.stores = stores}));
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    const uint64_t settle_ms = bench.options.quick ? 1 : 500;
    const uint64_t idle_ms = bench.options.quick ? 20 : 4000;
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                channel.send(to_json(Sample{.value = percent_of_core(settle_ms, idle_ms)}));
              }));
    BRAID_TRY(const auto message, client.receive(kIdleStartMs));
    return sample_from_json(message);
  }

 private:
  double percent_of_core(uint64_t settle_ms, uint64_t idle_ms) const {
    const BraidSide side;
    base::Reactor& reactor = *side.reactor;
    const auto device = create_device(side, Wire::kInHost);
    const auto session = connect(side, *device, server_->port);
    std::vector<std::unique_ptr<bnbd::RemoteDevice>> remotes;
    for (unsigned i = 0; i < devices_; ++i)
      remotes.push_back(open_export(side, *session, export_name(i).c_str()));
    pass(reactor, settle_ms);
    const CpuMeter meter({server_->process.pid()});
    const uint64_t begin_ns = clock_ns();
    pass(reactor, idle_ms);
    const double share =
        static_cast<double>(meter.used_ns()) / static_cast<double>(clock_ns() - begin_ns);
    for (auto& remote : remotes) reactor.run_until_done(remote->close());
    reactor.run_until_done(session->close());
    return 100 * share;
  }

  static void pass(base::Reactor& reactor, uint64_t time_ms) {
    base::Timer timer([](base::Timer& due) { static_cast<base::Reactor*>(due.context)->stop(); },
                      &reactor);
    reactor.schedule_after(timer, time_ms * base::kMillisecond);
    reactor.run();
  }

  const unsigned devices_;
  std::optional<ServerProcess> server_;
};

}  // namespace

std::unique_ptr<Candidate> braid_idle(unsigned devices) {
  return std::make_unique<BraidIdle>(devices);
}

}  // namespace braid::bench
