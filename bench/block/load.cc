#include "bench/block/load.h"

#include <algorithm>
#include <utility>

#include "bench/braid_side.h"

namespace braid::bench {
namespace {

constexpr unsigned kBlocksCompared = 8;

}  // namespace

Load::Load(base::Reactor& reactor, bnbd::BlockDevice& device, const BlockWork& work,
           uint64_t pause_ns)
    : reactor_(reactor), device_(device), work_(work), pause_ns_(pause_ns) {
  region_ = must(device.create_region(size_t{work.depth} * work.block_bytes));
  fill_random({region_->data(), region_->size()}, 3);
  for (unsigned i = 0; i < work.depth; ++i) {
    Place& place = places_.emplace_back(*this);
    place.request.op = work.write ? bnbd::BlockOp::kWrite : bnbd::BlockOp::kRead;
    place.request.length_bytes = work.block_bytes;
    place.request.buffer = {.region = region_.get(),
                            .address = region_->data() + size_t{i} * work.block_bytes};
    place.request.context = &place;
    place.request.done = [](bnbd::BlockRequest& request, base::Errc status) {
      auto& done = *static_cast<Place*>(request.context);
      done.owner.request_done(done, status);
    };
  }
}

double Load::run_for(unsigned duration_ms) {
  operations_ = 0;
  longest_ns_ = 0;
  const uint64_t start_ns = clock_ns();
  end_ns_ = start_ns + duration_ms * base::kMillisecond;
  in_flight_ = work_.depth;
  for (Place& place : places_) submit(place);
  reactor_.run();
  must(status_, "a request to the server");
  return static_cast<double>(operations_) * 1e9 / static_cast<double>(clock_ns() - start_ns);
}

void Load::fill() {
  BRAID_ASSERT(work_.block_bytes == kFillBytes);
  for (uint64_t at = 0; at < device_.info().size_bytes; at += kFillBytes) {
    fill_random(block(), at);
    one(bnbd::BlockOp::kWrite, at);
  }
}

void Load::compare_some() {
  for (unsigned i = 0; i < kBlocksCompared; ++i) {
    uint64_t at = next_offset();
    if (work_.write) {
      at -= at % kFillBytes;  // the beginning of a piece is the same however much of it is written
      fill_random(block(), at);
      one(bnbd::BlockOp::kWrite, at);
    }
    fill_random(block(), i);
    one(bnbd::BlockOp::kRead, at);
    if (is_of_store(block(), at)) continue;
    throw std::runtime_error(fmt::format("the block at {} is not what was written there", at));
  }
}

void Load::one(bnbd::BlockOp op, uint64_t offset_bytes) {
  Place& place = places_.front();
  const bnbd::BlockOp usual = std::exchange(place.request.op, op);
  end_ns_ = 0;
  in_flight_ = 1;
  place.request.offset_bytes = offset_bytes;
  device_.submit(place.request);
  reactor_.run();
  must(status_, "a request to the server");
  place.request.op = usual;
}

uint64_t Load::next_offset() {
  const uint64_t blocks = device_.info().size_bytes / work_.block_bytes;
  const uint64_t block = work_.sequential ? next_sequential_++ % blocks : random_.below(blocks);
  return block * work_.block_bytes;
}

void Load::submit(Place& place) {
  place.request.offset_bytes = next_offset();
  if (times_each()) place.submitted_ns = clock_ns();
  device_.submit(place.request);
}

void Load::request_done(Place& place, base::Errc status) {
  ++operations_;
  if (status != base::Errc::kOk) status_ = status;
  if (!work_.write) use({place.request.buffer.address, work_.block_bytes});
  uint64_t now_ns = reactor_.now_ns();
  if (times_each()) {
    now_ns = clock_ns();
    const uint64_t duration_ns = now_ns - place.submitted_ns;
    longest_ns_ = std::max(longest_ns_, duration_ns);
    if (durations_ns_.size() < kTimedMax) durations_ns_.push_back(duration_ns);
  }
  if (status_ == base::Errc::kOk && now_ns < end_ns_) {
    if (pause_ns_ > 0) return reactor_.schedule_after(place.pause, pause_ns_);
    return submit(place);
  }
  if (--in_flight_ == 0) reactor_.stop();
}

void Load::pause_over(base::Timer& timer) {
  auto& place = *static_cast<Place*>(timer.context);
  place.owner.submit(place);
}

}  // namespace braid::bench
