#include <atomic>
#include <cstring>
#include <new>

#include "bench/floor/floor.h"
#include "bench/floor/shared_pages.h"
#include "bench/spin.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

// What both processes see.
struct Exchange {
  struct alignas(64) Request {
    uint64_t offset_bytes = 0;
    std::atomic<uint64_t> sequence{0};
  };
  Request request;
  alignas(64) std::atomic<uint64_t> answered{0};
  alignas(4096) std::byte data[kBlockBytes] = {};
};

void serve(Exchange& exchange, const SharedPages& store) {
  for (uint64_t sequence = 1;; ++sequence) {
    Spinner spinner;
    while (exchange.request.sequence.load(std::memory_order_acquire) != sequence) spinner.turn();
    std::memcpy(exchange.data, store.data() + exchange.request.offset_bytes, kBlockBytes);
    exchange.answered.store(sequence, std::memory_order_release);
  }
}

class SharedMemoryRead : public Candidate {
 public:
  std::string name() const override { return "polled shared memory, one copy"; }
  std::string threads() const override { return "one a side; both spin, no yield"; }

  base::Status prepare(Bench& bench) override {
    work_ = block_workload(bench.options);
    store_.emplace(work_.store_bytes);
    fill_random({store_->data(), store_->size()}, 1);
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    SharedPages pages(sizeof(Exchange));
    auto& exchange = *new (pages.data()) Exchange;
    BRAID_TRY(Process server,
              Process::call(bench.interrupts, bench.cpus.server, [&](Channel& channel) {
                store_->populate();
                channel.send({{"ready", true}});
                serve(exchange, *store_);
              }));
    BRAID_TRY(const auto ready, server.receive(30'000));
    BRAID_TRY(Process client,
              Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
                channel.send(to_json(read(exchange, server.pid())));
              }));
    BRAID_TRY(const auto message, client.receive(static_cast<int>(work_.run_ms) + 60'000));
    return sample_from_json(message);
  }

 private:
  Sample read(Exchange& exchange, pid_t server) const {
    Random random(2);
    uint64_t sequence = 0;
    const auto operation = [&] {
      exchange.request.offset_bytes = random.below(work_.store_bytes / kBlockBytes) * kBlockBytes;
      exchange.request.sequence.store(++sequence, std::memory_order_release);
      Spinner spinner;
      while (exchange.answered.load(std::memory_order_acquire) != sequence) spinner.turn();
      use(exchange.data);
    };
    return measure_operations(work_.run_ms, work_.latency_ms, server, operation);
  }

  BlockWorkload work_;
  std::optional<SharedPages> store_;
};

}  // namespace

std::unique_ptr<Candidate> shared_memory_read() {
  return std::make_unique<SharedMemoryRead>();
}

}  // namespace braid::bench
