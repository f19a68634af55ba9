// A client and a server with a memory device in one thread, which take their turns one after the
// other: one I/O through all layers, with nothing else, for who counts what it takes.
//
// One thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "bench/braid_side.h"
#include "bench/workload.h"
#include "bnbd/remote.h"
#include "bnbd/server.h"
#include "vhca/device.h"

namespace braid::bench {

class BothEnds {
 public:
  static constexpr uint64_t kStoreBytes = 16 << 20;
  /// Puts something before a device; the result owns it.
  using Wrap = std::function<std::unique_ptr<vhca::Device>(std::unique_ptr<vhca::Device>)>;

  explicit BothEnds(const Wrap& wrap = {}, trs::ChunkGuard guard = trs::ChunkGuard::kNone);
  ~BothEnds();
  BothEnds(const BothEnds&) = delete;
  BothEnds& operator=(const BothEnds&) = delete;

  bnbd::RemoteDevice& remote() { return *remote_; }
  /// The server's.
  bnbd::BlockStatistics store_statistics() const;
  uint64_t now_ns() const { return client_.reactor->now_ns(); }
  void turn() {
    client_.reactor->turn();
    server_.reactor->turn();
  }

 private:
  template <typename T>
  T run(base::Task<T> task) {
    task.start();
    while (!task.done()) turn();
    return task.take();
  }

  BraidSide server_, client_;
  std::unique_ptr<vhca::Device> server_device_, client_device_;
  std::unique_ptr<bnbd::ExportServer> exports_;
  std::unique_ptr<bnbd::RemoteSession> session_;
  std::unique_ptr<bnbd::RemoteDevice> remote_;
};

/// Requests of one kind, `depth` at a time.
class BothEndsJob {
 public:
  BothEndsJob(BothEnds& ends, const BlockWork& work);
  void run(uint64_t count);
  /// Until nothing is new to either end, and the connection that carries no requests has fallen
  /// asleep, which it does once, after some milliseconds.
  void warm_up();

 private:
  void submit(bnbd::BlockRequest& request);

  BothEnds& ends_;
  const std::unique_ptr<bnbd::Region> region_;
  std::deque<bnbd::BlockRequest> requests_;
  Random random_{2};
  uint64_t left_ = 0;  // still to be submitted
  uint64_t open_ = 0;
};

}  // namespace braid::bench
