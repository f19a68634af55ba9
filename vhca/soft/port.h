// Port: a port of a software HCA: whether it is up, what is wrong with it, and who must know.
//
// Threads: any. Outlives the links that join it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/intrusive_list.h"
#include "base/reactor.h"
#include "base/result.h"
#include "base/task.h"
#include "vhca/port_faults.h"

namespace braid::vhca::soft {

/// A link, or its end, that hears of faults.
class PortUser : public base::ListNode {
 public:
  virtual ~PortUser() = default;
  /// The port's faults are others than before. Any thread, under the port's mutex.
  virtual void port_changed() = 0;
};

class Port {
 public:
  /// `trouble()` is made of these.
  static constexpr uint32_t kLosesSent = 1;
  static constexpr uint32_t kLosesReceived = 2;
  static constexpr uint32_t kLosesAnswers = 4;
  static constexpr uint32_t kDuplicates = 8;
  static constexpr uint32_t kDelays = 16;
  /// A peer's requests may end without an answer.
  static constexpr uint32_t kConcernsPeers = kLosesSent | kLosesReceived | kLosesAnswers;

  /// `can_repeat`: what passes can come twice.
  explicit Port(bool can_repeat = true) : can_repeat_(can_repeat) {}
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  /// What is wrong, in bits; 0: nothing.
  uint32_t trouble() const { return trouble_.load(std::memory_order_seq_cst); }
  uint64_t delay_ns() const { return delay_ns_.load(std::memory_order_relaxed); }
  /// Not made to be down. The link below it is another matter.
  bool up() const { return !down_.load(std::memory_order_relaxed); }

  /// kNotSupported: nothing can come twice here. Nothing was changed then.
  base::Status set_faults(const PortFaults& faults);
  /// Runs when up() changes, on the thread that changes it. Set before the port is used.
  void on_state(std::function<void(bool up)> callback) { on_state_ = std::move(callback); }

  /// The user hears of changes until it leaves; it looks at trouble() itself once it has joined.
  void join(PortUser& user);
  /// When this returns port_changed() neither runs nor will.
  void leave(PortUser& user);

  // --- counts
  std::atomic<uint64_t> lost{0};
  std::atomic<uint64_t> answers_lost{0};
  std::atomic<uint64_t> delayed{0};
  std::atomic<uint64_t> duplicated{0};
  PortFaultCounts counts() const;

 private:
  const bool can_repeat_;
  std::atomic<uint32_t> trouble_{0};
  std::atomic<uint64_t> delay_ns_{0};
  std::atomic<bool> down_{false};
  std::function<void(bool)> on_state_;
  std::mutex mutex_;
  base::IntrusiveList<PortUser> users_;  // mutex_
};

/// Until the port carries both ways: what a new connection is made through. Null: at once.
/// True.
base::Task<bool> pass_port(base::Reactor& reactor, const Port* port);

/// How long a request may stay without an answer; 0, as in verbs: for ever.
inline uint64_t retry_ns(uint8_t ack_timeout, uint8_t retry_count) {
  return ack_timeout == 0 ? 0 : (4096ull << ack_timeout) * (retry_count + 1u);
}
inline uint64_t retry_ns(const ConnectParameters& parameters) {
  return retry_ns(parameters.ack_timeout, parameters.retry_count);
}

}  // namespace braid::vhca::soft
