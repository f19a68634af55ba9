#include "bench/floor/sockets.h"

#include <optional>
#include <stdexcept>

#include "bench/floor/connection.h"
#include "bench/floor/two_processes.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

class SocketExchange : public Candidate {
 public:
  SocketExchange(SocketKind kind, bool connects, Waiting waiting)
      : kind_(kind), connects_(connects), waiting_(waiting) {}
  std::string name() const override {
    return fmt::format("{}, 8 bytes each way{}",
                       kind_ == SocketKind::kUnix ? "a unix socket" : "a TCP connection",
                       connects_ ? "" : ", connected before");
  }
  std::string threads() const override {
    return waiting_ == Waiting::kSpins ? "one a side; both spin, no yield"
                                       : "one a side; both sleep";
  }
  base::Status prepare(Bench&) override { return base::ok_status(); }

  base::Result<Sample> run(Bench& bench) override {
    Listener listener(kind_);
    const unsigned count = bench.options.quick ? 10 : 2000;
    return measure_between(
        bench, 0, [] {}, [&] { answer_each(listener, waiting_); },
        [&](pid_t) { return exchange_each(listener, count); });
  }

 private:
  static void answer_each(const Listener& listener, Waiting waiting) {
    for (;;) {
      const OwnedSocket socket = listener.accept();
      for (uint64_t number = 0; socket.receive(number, waiting);) socket.send(number);
    }
  }
  void exchange(const OwnedSocket& socket, uint64_t number) const {
    socket.send(number);
    uint64_t back = 0;
    if (!socket.receive(back, waiting_) || back != number)
      throw std::runtime_error("a wrong answer");
  }
  Sample exchange_each(Listener& listener, unsigned count) const {
    std::vector<uint64_t> durations_ns;
    std::optional<OwnedSocket> lasting;  // the server serves one at a time
    if (!connects_) lasting.emplace(listener.connect());
    for (uint64_t i = 1; i <= count; ++i) {
      const uint64_t begin_ns = clock_ns();
      if (lasting) {
        exchange(*lasting, i);
      } else {
        exchange(listener.connect(), i);
      }
      durations_ns.push_back(clock_ns() - begin_ns);
    }
    Sample sample{.latencies = latencies(durations_ns)};
    sample.value = static_cast<double>(sample.latencies->p50_ns) / 1000;
    return sample;
  }

  const SocketKind kind_;
  const bool connects_;
  const Waiting waiting_;
};

}  // namespace

void tcp_there_and_back(benchmark::State& state) {
  Listener listener(SocketKind::kTcp);
  const OwnedSocket here = listener.connect();
  const OwnedSocket there = listener.accept();
  uint64_t number = 0;
  for (auto _ : state) {
    here.send(++number);
    uint64_t got = 0;
    there.receive(got, Waiting::kSleeps);
    there.send(got);
    here.receive(got, Waiting::kSleeps);
    if (got != number) {
      state.SkipWithError("a wrong answer");
      break;
    }
  }
}

std::unique_ptr<Candidate> socket_set_up(SocketKind kind) {
  return std::make_unique<SocketExchange>(kind, /*connects=*/true, Waiting::kSleeps);
}

std::unique_ptr<Candidate> socket_exchange(SocketKind kind, Waiting waiting) {
  return std::make_unique<SocketExchange>(kind, /*connects=*/false, waiting);
}

}  // namespace braid::bench
