// The client that the rows of block devices measure: a remote device of an export server's, used
// through the block seam, without a front end.
//
// In a child only (Process::call); it has one reactor.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "bench/block/remote_server.h"
#include "bench/workload.h"

namespace braid::bench {

class RemoteClient {
 public:
  /// With a pause each operation is sent so long after the answer to the last one in its place, as
  /// by a program that does something with what it reads.
  RemoteClient(uint16_t port, const RemoteWay& way, const BlockWork& work, uint64_t pause_ns = 0);
  ~RemoteClient();
  RemoteClient(const RemoteClient&) = delete;
  RemoteClient& operator=(const RemoteClient&) = delete;

  /// Writes the whole store, so that is_of_store() holds. A client for kFillBytes at a time.
  void fill();
  /// The operations of the work, counted and then timed. Some are compared afterwards.
  Sample run(const BlockWorkload& sizes, pid_t server);

 private:
  /// One of the operations that are under way at a time.
  struct Place {
    explicit Place(RemoteClient& client) : owner(client), pause(&RemoteClient::pause_over, this) {}
    RemoteClient& owner;
    bnbd::BlockRequest request;
    base::Timer pause;
    uint64_t submitted_ns = 0;
  };
  uint64_t size() const { return remote_->info().size_bytes; }
  bool times_each() const { return durations_ns_.capacity() > 0; }
  double run_for(unsigned duration_ms);
  void compare_some();
  void one(bnbd::BlockOp op, uint64_t offset_bytes);
  uint64_t next_offset();
  void submit(Place& place);
  void request_done(Place& place, base::Errc status);
  static void pause_over(base::Timer& timer);

  const BlockWork work_;
  const uint64_t pause_ns_;
  BraidSide side_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<bnbd::RemoteSession> session_;
  std::unique_ptr<bnbd::RemoteDevice> remote_;
  std::unique_ptr<bnbd::Region> region_;
  std::deque<Place> places_;
  Random random_{2};
  uint64_t next_sequential_ = 0;
  base::Errc status_ = base::Errc::kOk;
  unsigned in_flight_ = 0;
  uint64_t operations_ = 0;
  uint64_t end_ns_ = 0;
  std::vector<uint64_t> durations_ns_;  // empty, without memory: operations are only counted
};

}  // namespace braid::bench
