#include "bench/micro/part_loops.h"

#include <atomic>

#include "base/message_queue.h"
#include "bench/micro/loop_row.h"
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

/// A sender must not wait for another one.
void atomic_exchange(benchmark::State& state) {
  std::atomic<uint64_t> word{0};
  uint64_t value = 1;
  for (auto _ : state) {
    value = word.exchange(value, std::memory_order_seq_cst) + 1;
    benchmark::DoNotOptimize(value);
  }
}

void immediates(benchmark::State& state) {
  const trs::ImmCodec codec(kQueueDepth);
  uint32_t chunk = 0;
  for (auto _ : state) {
    uint32_t wire = trs::to_network(codec.encode({.chunk = chunk, .offset_bytes = 64}));
    benchmark::DoNotOptimize(wire);  // else what is encoded is never decoded
    const trs::RequestImm request = codec.decode(trs::decode_imm(trs::from_network(wire)).payload);
    chunk = (request.chunk + 1) % kQueueDepth;
    benchmark::DoNotOptimize(chunk);
  }
}

void byte_swaps(benchmark::State& state) {
  uint32_t word = 0;
  for (auto _ : state) {
    uint32_t wire = __builtin_bswap32(word);
    benchmark::DoNotOptimize(wire);
    word = (__builtin_bswap32(wire) + 1) % kQueueDepth;
    benchmark::DoNotOptimize(word);
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

void first_bit(benchmark::State& state) {
  uint64_t bits = ~uint64_t{1};
  for (auto _ : state) {
    benchmark::DoNotOptimize(bits);
    auto at = static_cast<uint32_t>(std::countr_zero(bits));
    bits &= bits - 1;
    benchmark::DoNotOptimize(at);
    benchmark::DoNotOptimize(bits);
    bits |= uint64_t{1} << at;
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

void counters(benchmark::State& state) {
  std::array<uint64_t, 1 << 17> counts{};
  uint64_t latency_ns = 1000;
  for (auto _ : state) {
    ++counts[latency_ns];
    latency_ns = latency_ns * 5 % 100'003;
    benchmark::DoNotOptimize(counts);
  }
}

}  // namespace

void add_part_loops(std::vector<RowPlan>& plans) {
  const std::string one = "one thread";
  add_loop_row(plans, "message queue, push and pop", {one, &message_queue},
               {"one atomic exchange", &atomic_exchange});
  add_loop_row(plans, "immediate, encode and decode", {one, &immediates},
               {"two byte swaps", &byte_swaps});
  add_loop_row(plans, "permit, acquire and release", {one, &permits},
               {"first bit of a word, cleared and set", &first_bit});
  add_loop_row(plans, "latency histogram, record", {one, &latency_histogram},
               {"one counter of many", &counters});
}

}  // namespace braid::bench
