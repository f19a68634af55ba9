#include "bench/block/remote_io.h"

#include <csignal>

#include "bench/block/remote_client.h"
#include "bench/floor/shared_pages.h"

namespace braid::bench {
namespace {

constexpr int kRemoteStartMs = 60'000;
constexpr int kFillMs = 120'000;
constexpr int kEndMs = 62'000;
constexpr double kFloodTimes = 3;  // as many as the client that is measured

/// A sleeper's wake-up takes as long as many reads, and is not what a row with pauses measures.
RemoteWay way_of(const RemoteIo& io) {
  RemoteWay way = io.way;
  way.poll_budget_ns = std::max(way.poll_budget_ns, 4 * io.pause_ns);
  return way;
}

class BraidRemoteIo : public Candidate {
 public:
  explicit BraidRemoteIo(const RemoteIo& io) : io_(io), way_(way_of(io)) {}
  std::string name() const override {
    if (flood_per_s_ == 0) return io_.name;
    return fmt::format("{} of about {:.0f} k/s", io_.name, flood_per_s_ / 1000);
  }
  std::string threads() const override {
    if (io_.sleeps) return "the server spins, the client sleeps" + neighbour_text();
    return std::string(way_.poll_budget_ns > 0
                           ? "one reactor a side; both spin, yield after each empty turn"
                           : "one reactor a side; both sleep") +
           neighbour_text();
  }

  base::Status prepare(Bench& bench) override {
    const uint64_t store_bytes = block_workload(bench.options).store_bytes;
    const Store store{kStoreExport, store_bytes, StoreKind::kMemory, stores_have_huge_pages()};
    BRAID_TRY(server_,
              start_server(bench, {.stores = {store, {kOtherExport, kOtherBytes}}, .way = way_}));
    BRAID_TRY(Process filler, Process::call(bench.interrupts, bench.cpus.client,
                                            [&](Channel& channel) { fill(channel); }));
    BRAID_TRY(const auto filled, filler.receive(kFillMs));
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    const BlockWorkload sizes = block_workload(bench.options);
    std::optional<Process> other;  // ends with this run
    if (io_.beside != Neighbour::kNobody) {
      BRAID_TRY(other, Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                  be_neighbour(channel, io_.beside, server_->port, way_.wire, io_.idle_sessions,
                               !bench.options.quick, count_);
                }));
      BRAID_TRY(const auto begun, other->receive(kRemoteStartMs));
    }
    const uint64_t before = count_.get();
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                RemoteWay way = way_;
                if (io_.sleeps) way.poll_budget_ns = 0;
                RemoteClient client(server_->port, way, io_.work, io_.pause_ns);
                channel.send(to_json(client.run(sizes, server_->process.pid())));
              }));
    const bool stops = io_.beside == Neighbour::kStopped;
    BRAID_TRY(const auto message,
              stops ? receive_beside_stopped(bench, client, *other) : client.receive(kEndMs));
    if (other && !other->running()) {
      BRAID_TRY(const auto nothing, other->receive(kRemoteStartMs));
    }
    BRAID_TRY(const Sample sample, sample_from_json(message));
    BRAID_CHECK(check_flood(count_.get() - before, sample, sizes));
    return sample;
  }

 private:
  void fill(Channel& channel) const {
    RemoteClient(server_->port, way_, {.write = true, .block_bytes = kFillBytes}).fill();
    channel.send({{"filled", true}});
  }

  std::string neighbour_text() const {
    switch (io_.beside) {
      case Neighbour::kNobody:
        return "";
      case Neighbour::kClears:
        return "; who clears looks every 2 ms, on the client's CPU";
      case Neighbour::kIdle:
        return "; who is idle sleeps, on the client's CPU";
      case Neighbour::kHolds:
        return "; who holds looks every 500 ms, on the client's CPU";
      default:
        return fmt::format("; {} has the rest of its CPU", to_string(io_.beside));
    }
  }

  /// The server has a client that was stopped, at each moment but some.
  base::Result<nlohmann::json> receive_beside_stopped(Bench& bench, Process& client,
                                                      const Process& other) {
    for (int waited_ms = 0;; waited_ms += kStoppedMs) {
      ::kill(other.pid(), SIGSTOP);
      auto message = client.receive(kStoppedMs);
      const bool late = !message.ok() && message.error().code() == base::Errc::kTimedOut;
      if (!late || waited_ms > kEndMs) return message;
      ::kill(other.pid(), SIGCONT);
      BRAID_CHECK(bench.interrupts.pause_ms(kGoesOnMs));
    }
  }

  /// A row beside a flood says nothing if there was none.
  base::Status check_flood(uint64_t done, const Sample& sample, const BlockWorkload& sizes) {
    if (io_.beside != Neighbour::kReads && io_.beside != Neighbour::kWrites)
      return base::ok_status();
    flood_per_s_ = static_cast<double>(done) * 1000 / (sizes.run_ms + sizes.latency_ms);
    if (flood_per_s_ > kFloodTimes * sample.value) return base::ok_status();
    return base::make_error(base::Errc::kIo, "there was no flood: {:.0f} operations in a second",
                            flood_per_s_);
  }

  const RemoteIo io_;
  const RemoteWay way_;
  std::optional<ServerProcess> server_;
  SharedCount count_;       // of the neighbour
  double flood_per_s_ = 0;  // the last
};

}  // namespace

std::unique_ptr<Candidate> braid_remote_io(const RemoteIo& io) {
  return std::make_unique<BraidRemoteIo>(io);
}

}  // namespace braid::bench
