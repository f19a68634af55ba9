#include "bench/block/remote_read.h"

#include "bench/block/remote_client.h"

namespace braid::bench {
namespace {

constexpr int kStartMs = 60'000;
constexpr int kFillMs = 120'000;

class BraidRemoteRead : public Candidate {
 public:
  explicit BraidRemoteRead(const RemoteRead& read) : read_(read) {}
  std::string name() const override { return read_.name; }
  std::string threads() const override {
    return std::string("one reactor a side; both spin, yield after each empty turn") +
           (read_.beside_clears ? "; who clears looks every 2 ms, on the client's CPU" : "") +
           (read_.idle_sessions > 0 ? "; who is idle sleeps, on the client's CPU" : "");
  }

  base::Status prepare(Bench& bench) override {
    const uint64_t store_bytes = block_workload(bench.options).store_bytes;
    BRAID_TRY(server_, Process::call(bench.interrupts, bench.cpus.server, [&](Channel& channel) {
                serve_memory(channel, store_bytes, read_.pause_ns);
              }));
    BRAID_TRY(const auto ready, server_->receive(kStartMs));
    port_ = ready.at("port");
    BRAID_TRY(Process filler,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                RemoteClient(port_, kFillBytes, 0).fill();
                channel.send({{"filled", true}});
              }));
    BRAID_TRY(const auto filled, filler.receive(kFillMs));
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    const BlockWorkload work = block_workload(bench.options);
    std::optional<Process> other;  // ends with this run
    if (read_.beside_clears) {
      BRAID_TRY(other, Process::call(bench.interrupts, bench.cpus.client,
                                     [&](Channel& channel) { clear_without_end(channel, port_); }));
      BRAID_TRY(const auto flows, other->receive(kStartMs));
    }
    if (read_.idle_sessions > 0) {
      BRAID_TRY(other, Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                  idle_sessions(channel, port_, read_.idle_sessions);
                }));
      BRAID_TRY(const auto open, other->receive(kStartMs));
    }
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                RemoteClient client(port_, kBlockBytes, read_.pause_ns);
                channel.send(to_json(client.read(work, server_->pid())));
              }));
    BRAID_TRY(const auto message, client.receive(static_cast<int>(work.run_ms) + 60'000));
    if (other && !other->running()) {
      BRAID_TRY(const auto nothing, other->receive(kStartMs));
    }
    return sample_from_json(message);
  }

 private:
  const RemoteRead read_;
  std::optional<Process> server_;
  uint16_t port_ = 0;
};

}  // namespace

std::unique_ptr<Candidate> braid_remote_read(const RemoteRead& read) {
  return std::make_unique<BraidRemoteRead>(read);
}

}  // namespace braid::bench
