#include "bench/micro/session_rows.h"

#include <optional>

#include "bench/block/remote_server.h"
#include "bench/floor/sockets.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

enum class Step : uint8_t { kSession, kDevice };

class SetUp : public Candidate {
 public:
  SetUp(Wire wire, Step step) : wire_(wire), step_(step) {}
  std::string name() const override {
    return step_ == Step::kSession ? "braid, a session opened" : "braid, a device of a session";
  }
  std::string threads() const override { return "one reactor a side; both spin while they work"; }

  base::Status prepare(Bench& bench) override {
    const ServeOptions options{.stores = {{kStoreExport, 64 << 20, StoreKind::kNull}},
                               .way = {.wire = wire_}};
    BRAID_TRY(server_, start_server(bench, options));
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    const unsigned count = bench.options.quick ? 5 : 200;
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                std::vector<uint64_t> durations_ns = time_each(count);
                Sample sample{.latencies = latencies(durations_ns)};
                sample.value = static_cast<double>(sample.latencies->p50_ns) / 1000;
                channel.send(to_json(sample));
              }));
    BRAID_TRY(const auto message, client.receive(60'000));
    return sample_from_json(message);
  }

 private:
  /// Only what is asked is timed, not that it is closed again.
  std::vector<uint64_t> time_each(unsigned count) const {
    const BraidSide side;
    const auto device = create_device(side, wire_);
    std::vector<uint64_t> durations_ns;
    for (unsigned i = 0; i < count; ++i) {
      const uint64_t begin_ns = clock_ns();
      const auto session = connect(side, *device, server_->port);
      const uint64_t connected_ns = clock_ns();
      const auto remote = open_export(side, *session, kStoreExport);
      const uint64_t open_ns = clock_ns();
      durations_ns.push_back(step_ == Step::kSession ? connected_ns - begin_ns
                                                     : open_ns - connected_ns);
      side.reactor->run_until_done(remote->close());
      side.reactor->run_until_done(session->close());
    }
    return durations_ns;
  }

  const Wire wire_;
  const Step step_;
  std::optional<ServerProcess> server_;
};

void add(std::vector<RowPlan>& plans, Wire wire, Step step) {
  RowPlan plan{.name = fmt::format("{} set-up, {}", step == Step::kSession ? "session" : "device",
                                   to_string(wire)),
               .unit = "us"};
  plan.ours = std::make_unique<SetUp>(wire, step);
  const SocketKind kind = wire == Wire::kTcp ? SocketKind::kTcp : SocketKind::kUnix;
  plan.floor =
      step == Step::kSession ? socket_set_up(kind) : socket_exchange(kind, Waiting::kSpins);
  plans.push_back(std::move(plan));
}

}  // namespace

void add_session_rows(std::vector<RowPlan>& plans) {
  for (const Wire wire : {Wire::kInHost, Wire::kTcp}) {
    add(plans, wire, Step::kSession);
    add(plans, wire, Step::kDevice);
  }
}

}  // namespace braid::bench
