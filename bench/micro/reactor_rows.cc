#include "bench/micro/reactor_rows.h"

#include "bench/braid_side.h"
#include "bench/floor/floor.h"
#include "bench/micro/loop_row.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

// One message each way, again and again, until the time is up.
struct PingPong {
  struct Ball : base::Message {
    PingPong* game = nullptr;
  };
  PingPong(base::Reactor& client, base::Reactor& server) : client_(client), server_(server) {
    ping_.game = pong_.game = this;
    ping_.run = [](base::Message& message) {
      auto& game = *static_cast<Ball&>(message).game;
      game.client_.post(game.pong_);
    };
    pong_.run = [](base::Message& message) { static_cast<Ball&>(message).game->returned(); };
  }

  /// On the client's thread. The mean of a round trip, ns.
  double play(unsigned duration_ms) {
    const uint64_t start_ns = clock_ns();
    end_ns_ = start_ns + duration_ms * base::kMillisecond;
    server_.post(ping_);
    client_.run();
    return static_cast<double>(clock_ns() - start_ns) / static_cast<double>(round_trips_);
  }

 private:
  void returned() {
    ++round_trips_;
    if (client_.now_ns() < end_ns_) {
      server_.post(ping_);
    } else {
      client_.stop();
    }
  }
  base::Reactor& client_;
  base::Reactor& server_;
  uint64_t end_ns_ = 0;
  uint64_t round_trips_ = 0;
  Ball ping_, pong_;
};

class ReactorPingPong : public Candidate {
 public:
  ReactorPingPong(std::string name, uint64_t poll_budget_ns, unsigned divisor)
      : name_(std::move(name)), poll_budget_ns_(poll_budget_ns), divisor_(divisor) {}
  std::string name() const override { return name_; }
  std::string threads() const override {
    return poll_budget_ns_ == 0 ? "one a side; both sleep"
                                : "one a side; both spin, yield after each empty turn";
  }
  base::Status prepare(Bench&) override { return base::ok_status(); }

  base::Result<Sample> run(Bench& bench) override {
    const unsigned duration_ms = bench.options.quick ? 5 : 500;
    BRAID_TRY(Process child,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                channel.send(to_json(Sample{.value = play(bench.cpus, duration_ms) / divisor_}));
              }));
    BRAID_TRY(const auto message, child.receive(60'000));
    return sample_from_json(message);
  }

 private:
  double play(const Cpus& cpus, unsigned duration_ms) const {
    const BraidSide client(poll_budget_ns_);
    const base::Reactor::Options options{.name = "server", .poll_budget_ns = poll_budget_ns_};
    const auto server = must(base::Reactor::create(*client.host, options));
    const auto thread = must(client.host->start_thread("server", [&] {
      pin_to(cpus.server);
      server->run();
    }));
    const double round_trip_ns = PingPong(*client.reactor, *server).play(duration_ms);
    server->stop();
    return round_trip_ns;
  }

  std::string name_;
  uint64_t poll_budget_ns_;
  unsigned divisor_;
};

void empty_turn(benchmark::State& state) {
  const BraidSide side;
  for (auto _ : state) {
    bool did = side.reactor->turn();
    benchmark::DoNotOptimize(did);
  }
}

/// A turn reads the clock once.
void one_clock(benchmark::State& state) {
  for (auto _ : state) {
    uint64_t now_ns = clock_ns();
    benchmark::DoNotOptimize(now_ns);
  }
}

}  // namespace

void add_reactor_rows(std::vector<RowPlan>& plans) {
  add_loop_row(plans, "reactor, empty turn", {"reactor", &empty_turn},
               {"the clock, read once", &one_clock});

  RowPlan message{.name = "reactor to reactor, message, one way", .unit = "ns"};
  message.ours = std::make_unique<ReactorPingPong>("both poll", base::kSecond, 2);
  message.floor = cache_line_one_way();
  plans.push_back(std::move(message));

  RowPlan wake_up{.name = "reactor to reactor, both asleep, round trip", .unit = "ns"};
  wake_up.ours = std::make_unique<ReactorPingPong>("none polls", 0, 1);
  wake_up.floor = eventfd_round_trip();
  plans.push_back(std::move(wake_up));
}

}  // namespace braid::bench
