#include <sys/eventfd.h>
#include <unistd.h>

#include "bench/floor/floor.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

class CacheLineOneWay : public Candidate {
 public:
  std::string name() const override { return "cache line"; }
  base::Status prepare(Bench&) override { return base::ok_status(); }
  base::Result<Sample> run(Bench& bench) override {
    return Sample{.value = measure_cache_line_ns(bench.cpus, bench.options.quick ? 200 : 20'000)};
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
  std::string name() const override { return "eventfd, two sleeping processes"; }
  base::Status prepare(Bench&) override { return base::ok_status(); }

  base::Result<Sample> run(Bench& bench) override {
    const EventFd there, back;
    BRAID_TRY(Process server, Process::call(bench.interrupts, bench.cpus.server, [&](Channel&) {
                for (;;) {
                  there.wait();
                  back.signal();
                }
              }));
    const unsigned duration_ms = bench.options.quick ? 20 : 500;
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                const double per_second = Pass::count(duration_ms, [&] {
                  there.signal();
                  back.wait();
                });
                channel.send(to_json(Sample{.value = 1e9 / per_second}));
              }));
    BRAID_TRY(const auto message, client.receive(60'000));
    return sample_from_json(message);
  }
};

}  // namespace

std::unique_ptr<Candidate> cache_line_one_way() {
  return std::make_unique<CacheLineOneWay>();
}

std::unique_ptr<Candidate> eventfd_round_trip() {
  return std::make_unique<EventFdRoundTrip>();
}

}  // namespace braid::bench
