#include "bench/micro/ring_rows.h"

#include <cstring>

#include "bench/floor/shared_pages.h"
#include "bench/micro/loop_row.h"
#include "vhca/soft/inhost/inbound_ring.h"
#include "vhca/soft/inhost/outbound_ring.h"

namespace braid::bench {
namespace {

namespace inhost = vhca::soft::inhost;

constexpr uint32_t kRingReceives = 128;
constexpr uint32_t kReceiveBytes = 4096;

/// Both ends of one ring, as two processes have it.
struct RingRig {
  RingRig() { inbound.post(kReceiveBytes, true); }

  inhost::Geometry geometry = inhost::Geometry::for_receives(kRingReceives, 64 * 1024);
  SharedPages pages{geometry.total_bytes()};
  inhost::SegmentView view{pages.data(), geometry};
  inhost::CopyMark mark;
  inhost::InboundRing inbound{view, false};
  inhost::OutboundRing outbound{view, mark, /*heavy_fence_exists=*/true,
                                /*shares_receives=*/false};
};

/// `push(ring)` puts one message in; it is taken and its receive posted again.
template <typename Push>
void through_the_ring(benchmark::State& state, Push&& push) {
  RingRig ring;
  vhca::soft::Arrival arrival;
  for (auto _ : state) {
    if (ring.outbound.ready() != inhost::OutboundRing::Room::kReady) {
      state.SkipWithError("the ring has no room");
      break;
    }
    push(ring);
    if (ring.inbound.next(arrival) != vhca::soft::Next::kArrival) {
      state.SkipWithError("nothing has arrived");
      break;
    }
    benchmark::DoNotOptimize(arrival);
    ring.inbound.pop();
    ring.inbound.post(kReceiveBytes, true);
  }
}

void write_imm(benchmark::State& state) {
  through_the_ring(state, [imm = uint32_t{0}](RingRig& ring) mutable {
    ring.outbound.push_write_imm(++imm, 4096, 8, false);
    benchmark::DoNotOptimize(ring.outbound.must_signal(false));
  });
}

void send(benchmark::State& state) {
  uint64_t words[5] = {1, 2, 3, 4, 5};
  vhca::soft::Piece piece{.address = reinterpret_cast<std::byte*>(words), .length = sizeof words};
  vhca::soft::Request request;
  request.length = sizeof words;
  request.pieces = {&piece, 1};
  through_the_ring(state, [&](RingRig& ring) {
    ++words[0];
    ring.outbound.push_send(request, 0);
    benchmark::DoNotOptimize(ring.outbound.must_signal(false));
  });
}

/// A line of data and a word that says that it is there; the reader's word that it has been taken.
void line_and_words(benchmark::State& state) {
  struct alignas(64) Line {
    uint64_t data[7] = {};
    std::atomic<uint64_t> there{0};
  } line;
  alignas(64) std::atomic<uint64_t> taken{0};
  uint64_t number = 0;
  benchmark::DoNotOptimize(&line);  // another end may look at it: its stores stay
  for (auto _ : state) {
    line.data[0] = ++number;
    line.there.store(number, std::memory_order_release);
    benchmark::ClobberMemory();
    if (line.there.load(std::memory_order_acquire) != number) state.SkipWithError("not there");
    uint64_t got = line.data[0];
    benchmark::DoNotOptimize(got);
    taken.store(number, std::memory_order_release);
    benchmark::DoNotOptimize(taken);
  }
}

}  // namespace

void add_ring_rows(std::vector<RowPlan>& plans) {
  const std::string floor = "a line, a word that it is there and one that it is taken";
  add_loop_row(plans, "in-host ring, WRITE_WITH_IMM pushed and taken", {"one thread", &write_imm},
               {floor, &line_and_words});
  add_loop_row(plans, "in-host ring, SEND of 40 B pushed and taken", {"one thread", &send},
               {floor, &line_and_words});
}

}  // namespace braid::bench
