#include <sys/eventfd.h>
#include <unistd.h>

#include <new>

#include "bench/floor/floor.h"
#include "bench/floor/shared_pages.h"
#include "bench/ping_pong.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

class CacheLineOneWay : public Candidate {
 public:
  std::string name() const override { return "cache line"; }
  std::string threads() const override { return "one a side; both spin, no yield"; }
  base::Status prepare(Bench&) override { return base::ok_status(); }

  base::Result<Sample> run(Bench& bench) override {
    const SharedPages pages(sizeof(PingPong));
    auto& lines = *new (pages.data()) PingPong;
    BRAID_TRY(Process server, Process::call(bench.interrupts, bench.cpus.server,
                                            [&](Channel&) { answer_pings(lines, UINT32_MAX); }));
    const bool quick = bench.options.quick;
    BRAID_TRY(
        Process client, Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
          uint32_t number = 0;
          const auto round_trip = [&] { send_ping(lines, ++number); };
          channel.send(to_json(one_way(
              measure_operations(quick ? 2 : 500, quick ? 1 : 200, server.pid(), round_trip))));
        }));
    BRAID_TRY(const auto message, client.receive(60'000));
    return sample_from_json(message);
  }
};

class EventFd {
 public:
  EventFd() : fd_(eventfd(0, EFD_CLOEXEC)) { BRAID_ASSERT(fd_ >= 0); }
  ~EventFd() { close(fd_); }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;
  void signal() const {
    const uint64_t one = 1;
    BRAID_ASSERT(write(fd_, &one, sizeof one) == sizeof one);
  }
  void wait() const {
    uint64_t count = 0;
    BRAID_ASSERT(read(fd_, &count, sizeof count) == sizeof count);
  }

 private:
  int fd_;
};

class EventFdRoundTrip : public Candidate {
 public:
  explicit EventFdRoundTrip(bool as_rate) : as_rate_(as_rate) {}
  std::string name() const override { return "eventfd, two sleeping processes"; }
  std::string threads() const override { return "one a side; both sleep"; }
  base::Status prepare(Bench&) override { return base::ok_status(); }

  base::Result<Sample> run(Bench& bench) override {
    const EventFd there, back;
    BRAID_TRY(Process server, Process::call(bench.interrupts, bench.cpus.server, [&](Channel&) {
                for (;;) {
                  there.wait();
                  back.signal();
                }
              }));
    const unsigned duration_ms = bench.options.quick ? 5 : 500;
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                const double per_second = Pass::count(duration_ms, [&] {
                  there.signal();
                  back.wait();
                });
                channel.send(to_json(Sample{.value = as_rate_ ? per_second : 1e9 / per_second}));
              }));
    BRAID_TRY(const auto message, client.receive(60'000));
    return sample_from_json(message);
  }

 private:
  const bool as_rate_;
};

}  // namespace

std::unique_ptr<Candidate> cache_line_one_way() {
  return std::make_unique<CacheLineOneWay>();
}

std::unique_ptr<Candidate> eventfd_round_trip() {
  return std::make_unique<EventFdRoundTrip>(/*as_rate=*/false);
}

std::unique_ptr<Candidate> eventfd_round_trips() {
  return std::make_unique<EventFdRoundTrip>(/*as_rate=*/true);
}

}  // namespace braid::bench
