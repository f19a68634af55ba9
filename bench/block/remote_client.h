// What the rows of block devices measure: an export server with memory devices in one process, a
// remote device of it in another, over the in-host software HCA.
//
// In a child only (Process::call); each has its one reactor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/braid_side.h"
#include "bench/process.h"
#include "bench/workload.h"
#include "bnbd/remote.h"
#include "vhca/device.h"

namespace braid::bench {

inline constexpr const char* kStoreExport = "bench";
inline constexpr const char* kOtherExport = "other";  // for another client, small
inline constexpr uint64_t kOtherBytes = 64 << 20;

/// How long a reactor spins before it sleeps. With pauses it is longer than they are: a wake-up
/// takes as long as many reads, and is not what is measured.
uint64_t poll_budget_ns(uint64_t pause_ns);

/// Sends {"port": N} and serves for as long as the process lives.
void serve_memory(Channel& channel, uint64_t store_bytes, uint64_t pause_ns);

/// Clears kOtherExport without end, as much at a time and as many requests as the server takes.
/// Sends {"flows": true} once that is under way. It looks for answers every 2 ms and sleeps
/// between, so that it takes nearly nothing of a CPU that it shares; it throws when the server was
/// often done with nearly all by then.
void clear_without_end(Channel& channel, uint16_t port);

/// Opens so many sessions, which ask for nothing. Sends {"open": true}; then only heartbeats flow.
void idle_sessions(Channel& channel, uint16_t port, unsigned count);

/// A mapped device, with one request at a time.
class RemoteClient {
 public:
  /// With a pause each read is sent so long after the last one's answer, as by a program that does
  /// something with what it reads.
  RemoteClient(uint16_t port, size_t buffer_bytes, uint64_t pause_ns);
  ~RemoteClient();
  RemoteClient(const RemoteClient&) = delete;
  RemoteClient& operator=(const RemoteClient&) = delete;

  void fill();
  /// Random reads of kBlockBytes, some of them compared.
  Sample read(const BlockWorkload& work, pid_t server);

 private:
  uint64_t size() const { return remote_->info().size_bytes; }
  bool times_each() const { return durations_ns_.capacity() > 0; }
  double read_for(unsigned duration_ms);
  void compare_some();
  uint64_t next_offset() { return random_.below(size() / kBlockBytes) * kBlockBytes; }
  void submit_and_run();
  void submit();
  void request_done(base::Errc status);
  static void pause_over(base::Timer& timer);

  const uint64_t pause_ns_;
  BraidSide side_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<bnbd::RemoteSession> session_;
  std::unique_ptr<bnbd::RemoteDevice> remote_;
  std::unique_ptr<bnbd::Region> region_;
  bnbd::BlockRequest request_;
  base::Timer pause_{&RemoteClient::pause_over, this};
  Random random_{2};
  base::Errc status_ = base::Errc::kOk;
  uint64_t operations_ = 0;
  uint64_t end_ns_ = 0;
  uint64_t submitted_ns_ = 0;
  std::vector<uint64_t> durations_ns_;  // empty, without memory: operations are only counted
};

}  // namespace braid::bench
