// The load of the rows of block devices: reads or writes of a remote device through the block seam,
// so many at a time.
//
// On the reactor of the device, or before it runs.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/reactor.h"
#include "bench/workload.h"
#include "bnbd/block.h"

namespace braid::bench {

class Load {
 public:
  /// With a pause each operation is sent so long after the answer to the last one in its place, as
  /// by a program that does something with what it reads.
  Load(base::Reactor& reactor, bnbd::BlockDevice& device, const BlockWork& work,
       uint64_t pause_ns = 0);
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  /// Times each operation from here on.
  void time_each() { reserve_touched(durations_ns_, kTimedMax); }
  /// All in flight until the time is over and each has ended, or until finish(). The reactor runs
  /// as in any program: it spins, yields and sleeps as it likes. Operations per second; throws with
  /// the error of one that failed.
  double run_for(unsigned duration_ms);
  /// No further operation is sent.
  void finish() { end_ns_ = 0; }
  /// Writes the whole store, so that is_of_store() holds. A load of kFillBytes at a time.
  void fill();
  /// Not timed: that what was read or written so fast is what the store holds. Throws if not.
  void compare_some();

  uint64_t operations() const { return operations_; }  // of this run
  /// The longest of this run, if each is timed.
  uint64_t longest_ns() const { return longest_ns_; }
  /// Of all that were timed, up to kTimedMax.
  Latencies timed() { return latencies(durations_ns_); }

 private:
  /// One of the operations that are under way at a time.
  struct Place {
    explicit Place(Load& load) : owner(load), pause(&Load::pause_over, this) {}
    Load& owner;
    bnbd::BlockRequest request;
    base::Timer pause;
    uint64_t submitted_ns = 0;
  };
  /// One operation with the first place's buffer, block().
  void one(bnbd::BlockOp op, uint64_t offset_bytes);
  std::span<std::byte> block() { return {region_->data(), work_.block_bytes}; }
  uint64_t next_offset();
  bool times_each() const { return durations_ns_.capacity() > 0; }
  void submit(Place& place);
  void request_done(Place& place, base::Errc status);
  static void pause_over(base::Timer& timer);

  base::Reactor& reactor_;
  bnbd::BlockDevice& device_;
  const BlockWork work_;
  const uint64_t pause_ns_;
  std::unique_ptr<bnbd::Region> region_;
  std::deque<Place> places_;
  Random random_{2};
  uint64_t next_sequential_ = 0;
  base::Errc status_ = base::Errc::kOk;
  unsigned in_flight_ = 0;
  uint64_t operations_ = 0;
  uint64_t longest_ns_ = 0;
  uint64_t end_ns_ = 0;
  std::vector<uint64_t> durations_ns_;  // empty, without memory: operations are only counted
};

}  // namespace braid::bench
