#include "bench/micro/part_loops.h"

#include "base/message_queue.h"
#include "bench/micro/google.h"
#include "bnbd/latency.h"
#include "trs/imm.h"
#include "trs/permit_pool.h"

namespace braid::bench {
namespace {

constexpr uint32_t kQueueDepth = 128;

void message_queue(benchmark::State& state) {
  base::MessageQueue queue;
  base::Message message;
  for (auto _ : state) {
    queue.push(message);
    base::Message* popped = queue.pop();
    benchmark::DoNotOptimize(popped);
  }
}

void immediates(benchmark::State& state) {
  const trs::ImmCodec codec(kQueueDepth);
  uint32_t chunk = 0;
  for (auto _ : state) {
    const uint32_t wire = trs::to_network(codec.encode({.chunk = chunk, .offset_bytes = 64}));
    const trs::RequestImm request = codec.decode(trs::decode_imm(trs::from_network(wire)).payload);
    chunk = (request.chunk + 1) % kQueueDepth;
    benchmark::DoNotOptimize(chunk);
  }
}

void permits(benchmark::State& state) {
  trs::PermitPool pool(kQueueDepth);
  pool.add_every(0, 1, 1);
  for (auto _ : state) {
    const std::optional<uint32_t> permit = pool.acquire();
    if (!permit) {
      state.SkipWithError("no permit is free");
      break;
    }
    benchmark::DoNotOptimize(*permit);
    pool.release(*permit);
  }
}

void latency_histogram(benchmark::State& state) {
  bnbd::LatencyHistogram histogram;
  uint64_t latency_ns = 1000;
  for (auto _ : state) {
    histogram.record(latency_ns);
    latency_ns = latency_ns * 5 % 100'003;
    benchmark::DoNotOptimize(histogram);
  }
}

void add(std::vector<RowPlan>& plans, std::string name, void (*loop)(benchmark::State&)) {
  RowPlan plan{.name = std::move(name), .unit = "ns"};
  plan.ours = benchmark_loop("one thread", loop);
  plans.push_back(std::move(plan));
}

}  // namespace

void add_part_loops(std::vector<RowPlan>& plans) {
  add(plans, "message queue, push and pop", &message_queue);
  add(plans, "immediate, encode and decode", &immediates);
  add(plans, "permit, acquire and release", &permits);
  add(plans, "latency histogram, record", &latency_histogram);
}

}  // namespace braid::bench
