#include <atomic>
#include <cstring>
#include <new>

#include "bench/floor/floor.h"
#include "bench/floor/shared_pages.h"
#include "bench/floor/two_processes.h"
#include "bench/spin.h"

namespace braid::bench {
namespace {

// What both processes see: a ring of as many requests as are under way at a time, taken in turn,
// each with its data in a place of its own.
//
//   Request[depth] | answered[depth], a cache line each | data[depth], whole pages each
struct alignas(64) Request {
  uint64_t offset_bytes = 0;
  std::atomic<uint64_t> sequence{0};
};
struct alignas(64) Answer {
  std::atomic<uint64_t> sequence{0};
};

class Ring {
 public:
  explicit Ring(const BlockWork& work)
      : work_(work),
        pages_(work.depth * (sizeof(Request) + sizeof(Answer)) + kPage + data_bytes()) {
    for (unsigned i = 0; i < work.depth; ++i) {
      new (&request(i)) Request;
      new (&answer(i)) Answer;
    }
  }
  // Of operation number `sequence`, which counts up from 1.
  Request& request(uint64_t sequence) const {
    return reinterpret_cast<Request*>(pages_.data())[sequence % work_.depth];
  }
  Answer& answer(uint64_t sequence) const {
    return reinterpret_cast<Answer*>(pages_.data() +
                                     work_.depth * sizeof(Request))[sequence % work_.depth];
  }
  std::span<std::byte> data(uint64_t sequence) const {
    const size_t ends = pages_.size() - data_bytes();
    return {pages_.data() + ends - ends % kPage + sequence % work_.depth * work_.block_bytes,
            work_.block_bytes};
  }
  const SharedPages& pages() const { return pages_; }

 private:
  static constexpr size_t kPage = 4096;
  size_t data_bytes() const { return size_t{work_.depth} * work_.block_bytes; }
  const BlockWork work_;
  const SharedPages pages_;
};

void serve(const BlockWork& work, const Ring& ring, const SharedPages& store) {
  for (uint64_t sequence = 1;; ++sequence) {
    const Request& request = ring.request(sequence);
    Spinner spinner;
    while (request.sequence.load(std::memory_order_acquire) != sequence) spinner.turn();
    std::byte* const block = store.data() + request.offset_bytes;
    std::byte* const data = ring.data(sequence).data();
    std::memcpy(work.write ? block : data, work.write ? data : block, work.block_bytes);
    ring.answer(sequence).sequence.store(sequence, std::memory_order_release);
  }
}

class SharedMemoryIo : public Candidate {
 public:
  explicit SharedMemoryIo(const BlockWork& work) : work_(work) {}
  std::string name() const override { return "polled shared memory, one copy"; }
  std::string threads() const override { return "one a side; both spin, no yield"; }

  base::Status prepare(Bench& bench) override {
    sizes_ = block_workload(bench.options);
    store_.emplace(sizes_.store_bytes);
    if (stores_have_huge_pages()) BRAID_ASSERT(store_->make_huge());
    fill_random({store_->data(), store_->size()}, 1);
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    const Ring ring(work_);
    ring.pages().populate();
    return measure_between(
        bench, sizes_.run_ms, [&] { store_->populate(); }, [&] { serve(work_, ring, *store_); },
        [&](pid_t server) { return ask(ring, server); });
  }

 private:
  Sample ask(const Ring& ring, pid_t server) const {
    Random random(2);
    const uint64_t blocks = sizes_.store_bytes / work_.block_bytes;
    uint64_t posted = 0, answered = 0;
    const auto post = [&] {
      Request& request = ring.request(++posted);
      const uint64_t block = work_.sequential ? posted % blocks : random.below(blocks);
      request.offset_bytes = block * work_.block_bytes;
      if (work_.write) make(ring.data(posted), posted);
      request.sequence.store(posted, std::memory_order_release);
    };
    // The oldest ends, and another takes its place.
    const auto operation = [&] {
      post();
      if (posted - answered < work_.depth) return;
      ++answered;
      Spinner spinner;
      while (ring.answer(answered).sequence.load(std::memory_order_acquire) != answered) {
        spinner.turn();
      }
      if (!work_.write) use(ring.data(answered));
    };
    Sample sample = measure_operations(sizes_.run_ms, sizes_.latency_ms, server, operation);
    sample.value = in_unit_of(work_, sample.value);
    // The time of one operation is no latency where others are under way.
    if (work_.depth > 1) sample.latencies.reset();
    return sample;
  }

  const BlockWork work_;
  BlockWorkload sizes_;
  std::optional<SharedPages> store_;
};

}  // namespace

std::unique_ptr<Candidate> shared_memory_io(const BlockWork& work) {
  return std::make_unique<SharedMemoryIo>(work);
}

}  // namespace braid::bench
