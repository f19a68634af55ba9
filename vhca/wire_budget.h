// WireBudget: how much a device in software may move over its wire for the queue pairs of one
// client before others have had their turn.
//
// Where the program's own processor moves the data (TCP), a peer that sends as much as it can would
// have all of it, however few of its requests are taken. Queue pairs that share a budget take from
// it what they receive and what they send, and receive no more when it is used up, until their
// owner gives more: what is too much stays in the socket. A system call, a burst of small frames
// and what is sent may take more than there is: that is owed.
//
// Once one of them was refused, the queue pairs of a budget receive one after the other: in a round
// each of them once. A round ends with a give() before which nobody was refused who had not had his
// turn in it.
//
// Threads: one, that of the queue pairs' owner and of the reactor of their connections.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace braid::vhca {

/// A queue pair's place in the rounds of its budget.
struct WireTurn {
  uint64_t round = 0;  // the last one in which it received
};

class WireBudget {
 public:
  /// What handling a frame of the peer costs beside its bytes, in bytes that could be moved
  /// instead.
  static constexpr int64_t kFrameBytes = 1024;
  /// A system call for less is not worth it: the rest is owed.
  static constexpr int64_t kCallBytes = 4096;
  static constexpr int64_t kOwedMax = 16 << 20;

  /// Whether the queue pair may receive now. If not it shall ask again in each turn of its owner.
  bool begin(WireTurn& its) {
    if (!bounded()) return true;
    const bool had_its_turn = its.round == round_;
    if (left_ > 0 && !(had_its_turn && contested_)) {
      its.round = round_;
      return true;
    }
    if (!had_its_turn) contested_ = refused_ = true;
    return false;
  }
  /// How many of `wanted` bytes may be received by the next system call; 0: none before more is
  /// given.
  uint64_t most(uint64_t wanted) const {
    if (left_ <= 0) return 0;
    return std::min(wanted, static_cast<uint64_t>(std::max(left_, kCallBytes)));
  }
  void moved(uint64_t bytes) { left_ -= static_cast<int64_t>(bytes); }
  void handled_frame() { left_ -= kFrameBytes; }
  bool used_up() const { return left_ <= 0; }
  bool bounded() const { return left_ <= kUnbounded / 2; }

  // --- the owner
  /// Of what was not used nothing is kept; what is owed is taken off. More than kOwedMax is
  /// forgiven: who must be heard within a heartbeat's time cannot pay for answers of many seconds.
  void give(uint64_t bytes) {
    if (!std::exchange(refused_, false)) {
      ++round_;
      contested_ = false;
    }
    left_ = std::clamp<int64_t>(left_, -kOwedMax, 0) + static_cast<int64_t>(bytes);
  }
  /// Whoever uses it shares with nobody.
  void give_all() { left_ = kUnbounded; }

 private:
  static constexpr int64_t kUnbounded = INT64_MAX / 2;
  int64_t left_ = kUnbounded;
  uint64_t round_ = 1;
  bool contested_ = false;  // somebody was refused in this round
  bool refused_ = false;    // ... since the last give()
};

}  // namespace braid::vhca
