// Turns: how much of a turn of one reactor each client may have, so that who asks for as much as it
// can keeps nobody else waiting for long.
//
// While the server has one session, that one has all it can take. Of several, those that are not
// open yet included, each client has an equal part of a turn that is short, however many sessions
// are its own: a request waits for one turn before it is taken, and for one more before it is
// answered. Counted are completions, by client and not by connection; what one leaves of its part
// others may have. Data that is copied or sent has a bound of its own, and so has what a device
// moves for a client (vhca/wire_budget.h). Parts are equal among those that have asked for
// something lately, or used up what may be moved for them, in windows of time, since an honest
// client with few requests is busy in few turns.
//
// Thread: the reactor's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/host.h"
#include "vhca/wire_budget.h"

namespace braid::trs::server {

/// A client's at one reactor. On a line of its own, as others are other reactors'.
struct alignas(64) TurnShare {
  uint64_t turn = 0;       // to which `left` belongs
  size_t left = 0;         // completions
  bool owes = false;       // in this turn, for what devices have moved: is not given more of it
  bool asked = false;      // a request has come since the last took(): set by who takes it
  uint64_t window = 0;     // the last one in which the client asked for anything
  uint64_t part_turn = 0;  // the last turn in which it had a part of what is long
  vhca::WireBudget wire;   // of all its connections here
};

class Turns {
 public:
  /// All clients together, if there are several sessions; each that asks has at least one.
  static constexpr size_t kCompletionsMax = 4;
  /// Data that is sent, or copied by a guard, at once; what is more waits, and goes in parts.
  static constexpr size_t kBytesMax = 16 << 10;
  /// What a device in software may move for all clients together; each that asks has at least the
  /// minimum.
  static constexpr size_t kWireBytesMax = 16 << 10;
  static constexpr size_t kWireBytesMin = 8 << 10;
  static constexpr uint64_t kWindowNs = base::kMillisecond;

  /// `sessions`: how many there are at the server, also those that are not open.
  void begin(uint64_t now_ns, size_t sessions) {
    ++turn_;
    several_ = sessions > 1;
    if (!several_) return;
    if (now_ns - window_began_ns_ >= kWindowNs) {
      window_began_ns_ = now_ns;
      ++window_;
      busy_before_ = busy_;
      busy_ = 0;
    }
    rest_ = kCompletionsMax;
    bytes_left_ = kBytesMax;
    const size_t busy = std::max<size_t>({busy_, busy_before_, 1});
    share_ = std::max<size_t>(kCompletionsMax / busy, 1);
    wire_share_ = std::max(kWireBytesMax / busy, kWireBytesMin);
  }
  uint64_t turn() const { return turn_; }
  /// Whether clients have to share the present turn.
  bool several() const { return several_; }
  /// How many completions the client may take now: none while it owes for what devices have moved,
  /// since the answers are moved, too. Its part of that begins anew with the first call of a turn.
  size_t left(TurnShare& its) {
    if (!several_) {
      its.wire.give_all();
      its.owes = false;
      return SIZE_MAX;
    }
    if (its.turn != turn_) {
      its.turn = turn_;
      if (its.wire.used_up()) count_busy(its);
      its.wire.give(wire_share_);
      its.owes = its.wire.used_up();
      its.left = its.owes ? 0 : share_;
    }
    return its.left;
  }
  /// What nobody has taken yet: for those that have taken all that was left for them, when all had
  /// their part.
  size_t rest() const { return several_ ? rest_ : 0; }
  /// Whether so much data may go at once, with so much left for parts; counts it if so.
  bool takes_bytes(size_t bytes, size_t for_parts = 0) {
    if (!several_) return true;
    if (bytes + for_parts > bytes_left_) return false;
    bytes_left_ -= bytes;
    return true;
  }
  void took(TurnShare& its, size_t completions) {
    if (!several_) return;
    its.left -= std::min(its.left, completions);
    rest_ -= std::min(rest_, completions);
    if (std::exchange(its.asked, false)) count_busy(its);
  }

 private:
  void count_busy(TurnShare& its) {
    if (its.window != window_) ++busy_;
    its.window = window_;
  }

  uint64_t turn_ = 0;
  uint64_t window_ = 1;
  uint64_t window_began_ns_ = 0;
  size_t busy_ = 0;         // clients, in this window so far
  size_t busy_before_ = 0;  // in the last one
  bool several_ = false;
  size_t share_ = kCompletionsMax;
  size_t wire_share_ = kWireBytesMax;
  size_t rest_ = 0;
  size_t bytes_left_ = 0;
};

}  // namespace braid::trs::server
