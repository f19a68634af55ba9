// Other clients of a server than the one that is measured: what they do to it, they do to each.
//
// Main thread, but for be_neighbour(): in a child only (Process::call).
#pragma once

#include <atomic>
#include <string_view>

#include "bench/block/remote_server.h"

namespace braid::bench {

enum class Neighbour : uint8_t {
  kNobody,
  kComputes,  // asks for nothing, and computes when nobody else wants the CPU
  kIdle,      // sessions that ask for nothing
  /// Clears of a MiB, as many as the server takes. It looks for answers every 2 ms and sleeps
  /// between, so that it takes nearly nothing of a CPU that it shares; it fails when the server was
  /// often done with nearly all by then.
  kClears,
  /// 4 KiB, as many as the server takes, when nobody else wants the CPU.
  kReads,
  kWrites,
  /// As kReads, but stopped by a signal, with all under way, 24 of 25 parts of the time.
  kStopped,
  /// 4 KiB reads, as many as the server takes, of which it looks at no answer for half a second;
  /// then it asks again at once.
  kHolds,
};
/// "a client that floods with 4 KiB reads".
std::string_view to_string(Neighbour neighbour);

/// How long a stopped client is stopped, and goes on: for less than heartbeats take, so that the
/// server has it all the time.
inline constexpr int kStoppedMs = 480;
inline constexpr int kGoesOnMs = 20;

/// What a child has done, as its parent sees it.
class SharedCount {
 public:
  SharedCount();
  ~SharedCount();
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  void set(uint64_t count) { count_->store(count, std::memory_order_relaxed); }
  uint64_t get() const { return count_->load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t>* count_;
};

/// Sends a value once it does what it is there for, and goes on for as long as the process lives.
/// Its device is kOtherExport, its session of another address than other clients' over TCP.
/// `judged`: it ends with an error if it has too little to do for long. `count`: of its operations,
/// where it floods.
void be_neighbour(Channel& channel, Neighbour neighbour, uint16_t port, Wire wire,
                  unsigned idle_sessions, bool judged, SharedCount& count);

}  // namespace braid::bench
