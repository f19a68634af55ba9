// WireBudget: how much a device in software may move over its wire for the queue pairs of one
// client before others have had their turn.
//
// Where the program's own processor moves the data (TCP), a peer that sends as much as it can would
// have all of it, however few of its requests are taken. Queue pairs that share a budget take from
// it what they receive and what they send, and receive no more when it is used up: what is too much
// stays in the socket. A system call, a burst of small frames and what is sent may take more than
// there is: that is owed.
//
// Whoever is refused waits in a queue, and costs nothing while it waits. Their owner gives more in
// each of its turns and then lets them go on in their order; nobody overtakes them.
//
// Threads: one, that of the queue pairs' owner and of the reactor of their connections.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/intrusive_list.h"

namespace braid::vhca {

/// A queue pair, in the queue of its budget while it waits to receive.
class WireUser : public base::ListNode {
 public:
  /// It may receive now. Called by WireBudget::resume().
  virtual void resume_receiving() = 0;

 protected:
  ~WireUser() = default;
};

class WireBudget {
 public:
  /// What handling a frame of the peer costs beside its bytes, in bytes that could be moved
  /// instead.
  static constexpr int64_t kFrameBytes = 1024;
  /// The same of a system call that moved any. One for less is not worth it: the rest is owed.
  static constexpr int64_t kCallBytes = 4096;
  /// A system call that found nothing.
  static constexpr int64_t kEmptyCallBytes = 512;
  static constexpr int64_t kOwedMax = 16 << 20;

  /// Whether the queue pair may receive now. If not it waits: resume() tells when.
  bool begin(WireUser& its) {
    if (!bounded()) return true;
    if (left_ > 0 && (waiting_.empty() || &its == resumed_)) return true;
    const bool first = waiting_.empty();
    if (!its.linked()) waiting_.push_back(its);
    if (first && on_wait_) on_wait_();
    return false;
  }
  /// How many of `wanted` bytes may be received by the next system call; 0: none before more is
  /// given.
  uint64_t most(uint64_t wanted) const {
    if (left_ <= 0) return 0;
    return std::min(wanted, static_cast<uint64_t>(std::max(left_, kCallBytes)));
  }
  void moved(uint64_t bytes) { left_ -= static_cast<int64_t>(bytes); }
  /// By one system call.
  void moved_by_call(uint64_t bytes) { moved(bytes + kCallBytes); }
  void called_in_vain() { left_ -= kEmptyCallBytes; }
  void handled_frame() { left_ -= kFrameBytes; }
  bool used_up() const { return left_ <= 0; }
  bool bounded() const { return left_ <= kUnbounded / 2; }

  // --- the owner
  /// Of what was not used nothing is kept; what is owed is taken off. More than kOwedMax is
  /// forgiven: who must be heard within a heartbeat's time cannot pay for answers of many seconds.
  void give(uint64_t bytes) {
    left_ = std::clamp<int64_t>(left_, -kOwedMax, 0) + static_cast<int64_t>(bytes);
  }
  /// Whoever uses it shares with nobody.
  void give_all() { left_ = kUnbounded; }

  /// Whether somebody waits, who needs resume() in each turn.
  bool waits() const { return !waiting_.empty(); }
  /// Lets those that wait receive, one after the other, for as long as there is anything left. How
  /// many did. Not from within a queue pair.
  size_t resume() {
    size_t count = 0;
    for (; left_ > 0 && !waiting_.empty(); ++count) {
      resumed_ = waiting_.pop_front();
      resumed_->resume_receiving();
    }
    resumed_ = nullptr;
    return count;
  }
  /// Runs when somebody begins to wait while nobody did: from within a queue pair.
  void on_wait(std::function<void()> callback) { on_wait_ = std::move(callback); }

 private:
  static constexpr int64_t kUnbounded = INT64_MAX / 2;
  int64_t left_ = kUnbounded;
  base::IntrusiveList<WireUser> waiting_;  // who waits longest is the first
  WireUser* resumed_ = nullptr;
  std::function<void()> on_wait_;
};

}  // namespace braid::vhca
