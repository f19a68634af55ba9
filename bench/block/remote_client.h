// The client that the rows of block devices measure: a remote device of an export server's, used
// through the block seam, without a front end.
//
// In a child only (Process::call); it has one reactor.
#pragma once

#include <memory>
#include <optional>

#include "bench/block/load.h"
#include "bench/block/remote_server.h"
#include "bench/workload.h"

namespace braid::bench {

class RemoteClient {
 public:
  /// The pause: Load's.
  RemoteClient(uint16_t port, const RemoteWay& way, const BlockWork& work, uint64_t pause_ns = 0);
  ~RemoteClient();
  RemoteClient(const RemoteClient&) = delete;
  RemoteClient& operator=(const RemoteClient&) = delete;

  /// Writes the whole store, so that is_of_store() holds. A client for kFillBytes at a time.
  void fill();
  /// The operations of the work, counted and then timed. Some are compared afterwards.
  Sample run(const BlockWorkload& sizes, pid_t server);

 private:
  const BlockWork work_;
  BraidSide side_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<bnbd::RemoteSession> session_;
  std::unique_ptr<bnbd::RemoteDevice> remote_;
  std::optional<Load> load_;
};

}  // namespace braid::bench
