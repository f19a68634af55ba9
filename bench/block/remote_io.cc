#include "bench/block/remote_io.h"

#include "bench/block/remote_client.h"

namespace braid::bench {
namespace {

constexpr int kStartMs = 60'000;
constexpr int kFillMs = 120'000;

/// A sleeper's wake-up takes as long as many reads, and is not what a row with pauses measures.
RemoteWay way_of(const RemoteIo& io) {
  RemoteWay way = io.way;
  way.poll_budget_ns = std::max(way.poll_budget_ns, 4 * io.pause_ns);
  return way;
}

class BraidRemoteIo : public Candidate {
 public:
  explicit BraidRemoteIo(const RemoteIo& io) : io_(io), way_(way_of(io)) {}
  std::string name() const override { return io_.name; }
  std::string threads() const override {
    return std::string(way_.poll_budget_ns > 0
                           ? "one reactor a side; both spin, yield after each empty turn"
                           : "one reactor a side; both sleep") +
           (io_.beside_clears ? "; who clears looks every 2 ms, on the client's CPU" : "") +
           (io_.idle_sessions > 0 ? "; who is idle sleeps, on the client's CPU" : "");
  }

  base::Status prepare(Bench& bench) override {
    const uint64_t store_bytes = block_workload(bench.options).store_bytes;
    BRAID_TRY(server_, Process::call(bench.interrupts, bench.cpus.server, [&](Channel& channel) {
                serve(channel,
                      {.stores = {{kStoreExport, store_bytes}, {kOtherExport, kOtherBytes}},
                       .way = way_});
              }));
    BRAID_TRY(const auto ready, server_->receive(kStartMs));
    port_ = ready.at("port");
    BRAID_TRY(Process filler, Process::call(bench.interrupts, bench.cpus.client,
                                            [&](Channel& channel) { fill(channel); }));
    BRAID_TRY(const auto filled, filler.receive(kFillMs));
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    const BlockWorkload sizes = block_workload(bench.options);
    std::optional<Process> other;  // ends with this run
    if (io_.beside_clears) {
      BRAID_TRY(other, Process::call(bench.interrupts, bench.cpus.client,
                                     [&](Channel& channel) { clear_without_end(channel, port_); }));
      BRAID_TRY(const auto flows, other->receive(kStartMs));
    }
    if (io_.idle_sessions > 0) {
      BRAID_TRY(other, Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                  idle_sessions(channel, port_, io_.idle_sessions);
                }));
      BRAID_TRY(const auto open, other->receive(kStartMs));
    }
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                RemoteClient client(port_, way_, io_.work, io_.pause_ns);
                channel.send(to_json(client.run(sizes, server_->pid())));
              }));
    BRAID_TRY(const auto message, client.receive(static_cast<int>(sizes.run_ms) + 60'000));
    if (other && !other->running()) {
      BRAID_TRY(const auto nothing, other->receive(kStartMs));
    }
    return sample_from_json(message);
  }

 private:
  void fill(Channel& channel) const {
    RemoteClient(port_, way_, {.write = true, .block_bytes = kFillBytes}).fill();
    channel.send({{"filled", true}});
  }

  const RemoteIo io_;
  const RemoteWay way_;
  std::optional<Process> server_;
  uint16_t port_ = 0;
};

}  // namespace

std::unique_ptr<Candidate> braid_remote_io(const RemoteIo& io) {
  return std::make_unique<BraidRemoteIo>(io);
}

}  // namespace braid::bench
