#include "bench/block/remote_client.h"

namespace braid::bench {
namespace {

constexpr unsigned kBlocksCompared = 8;

}  // namespace

RemoteClient::RemoteClient(uint16_t port, const RemoteWay& way, const BlockWork& work,
                           uint64_t pause_ns)
    : work_(work), pause_ns_(pause_ns), side_(way.poll_budget_ns) {
  device_ = create_device(side_, way.wire);
  session_ = connect(side_, *device_, port);
  remote_ = open_export(side_, *session_, kStoreExport);
  region_ = must(remote_->create_region(size_t{work.depth} * work.block_bytes));
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

RemoteClient::~RemoteClient() {
  region_.reset();
  side_.reactor->run_until_done(remote_->close());
  side_.reactor->run_until_done(session_->close());
}

void RemoteClient::fill() {
  BRAID_ASSERT(work_.block_bytes == kFillBytes);
  for (uint64_t at = 0; at < size(); at += kFillBytes) {
    fill_random({region_->data(), kFillBytes}, at);
    one(bnbd::BlockOp::kWrite, at);
  }
}

Sample RemoteClient::run(const BlockWorkload& sizes, pid_t server) {
  const CpuMeter meter({server});
  Sample sample{.value = in_unit_of(work_, run_for(sizes.run_ms))};
  sample.cpu_ns = static_cast<double>(meter.used_ns()) / static_cast<double>(operations_);
  reserve_touched(durations_ns_, kTimedMax);
  run_for(sizes.latency_ms);
  sample.latencies = latencies(durations_ns_);
  compare_some();
  return sample;
}

/// Operations per second. The reactor runs as in any program: it spins, yields and sleeps as it
/// likes.
double RemoteClient::run_for(unsigned duration_ms) {
  operations_ = 0;
  const uint64_t start_ns = clock_ns();
  end_ns_ = start_ns + duration_ms * base::kMillisecond;
  in_flight_ = work_.depth;
  for (Place& place : places_) submit(place);
  side_.reactor->run();
  must(status_, "a request to the server");
  return static_cast<double>(operations_) * 1e9 / static_cast<double>(clock_ns() - start_ns);
}

// Not timed: that what was read or written so fast is what the store holds.
void RemoteClient::compare_some() {
  const std::span block(region_->data(), work_.block_bytes);
  for (unsigned i = 0; i < kBlocksCompared; ++i) {
    uint64_t at = next_offset();
    if (work_.write) {
      at -= at % kFillBytes;  // the beginning of a piece is the same however much of it is written
      fill_random(block, at);
      one(bnbd::BlockOp::kWrite, at);
    }
    fill_random(block, i);
    one(bnbd::BlockOp::kRead, at);
    if (is_of_store(block, at)) continue;
    throw std::runtime_error(fmt::format("the block at {} is not what was written there", at));
  }
}

/// One operation with the first place's buffer.
void RemoteClient::one(bnbd::BlockOp op, uint64_t offset_bytes) {
  Place& place = places_.front();
  const bnbd::BlockOp usual = std::exchange(place.request.op, op);
  end_ns_ = 0;
  in_flight_ = 1;
  place.request.offset_bytes = offset_bytes;
  remote_->submit(place.request);
  side_.reactor->run();
  must(status_, "a request to the server");
  place.request.op = usual;
}

uint64_t RemoteClient::next_offset() {
  const uint64_t blocks = size() / work_.block_bytes;
  const uint64_t block = work_.sequential ? next_sequential_++ % blocks : random_.below(blocks);
  return block * work_.block_bytes;
}

void RemoteClient::submit(Place& place) {
  place.request.offset_bytes = next_offset();
  if (times_each()) place.submitted_ns = clock_ns();
  remote_->submit(place.request);
}

void RemoteClient::request_done(Place& place, base::Errc status) {
  ++operations_;
  if (status != base::Errc::kOk) status_ = status;
  if (!work_.write) use({place.request.buffer.address, work_.block_bytes});
  uint64_t now_ns = side_.reactor->now_ns();
  if (times_each()) {
    now_ns = clock_ns();
    if (durations_ns_.size() < kTimedMax) durations_ns_.push_back(now_ns - place.submitted_ns);
  }
  if (status_ == base::Errc::kOk && now_ns < end_ns_) {
    if (pause_ns_ > 0) return side_.reactor->schedule_after(place.pause, pause_ns_);
    return submit(place);
  }
  if (--in_flight_ == 0) side_.reactor->stop();
}

void RemoteClient::pause_over(base::Timer& timer) {
  auto& place = *static_cast<Place*>(timer.context);
  place.owner.submit(place);
}

}  // namespace braid::bench
