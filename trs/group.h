// Multicast groups: several sessions as one. A request goes to all legs at once, and ends once,
// with the result of each leg (docs/multicast.md).
//
// A group has a queue per reactor, as sessions have; the sessions of a group run on the group's
// reactors, in the same order, and share a Domain. Two messages per leg and request. A request's
// permits, one of each leg's session, are taken together: groups may share sessions and do not
// wait for each other in a circle.
//
// Threads: Group is the home reactor's, a GroupQueue its reactor's. Nothing allocates or locks on
// the way of a request.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/intrusive_list.h"
#include "base/reactor.h"
#include "base/task.h"
#include "trs/client.h"

namespace braid::trs {

/// Legs have slots 0 to kLegsMax - 1; bit n of a LegMask is slot n.
inline constexpr size_t kLegsMax = 16;
using LegMask = uint32_t;
inline constexpr LegMask kAllLegs = (LegMask{1} << kLegsMax) - 1;

/// What becomes of requests while a leg has no path.
enum class LegPolicy : uint8_t {
  kWait,      // its session holds them: ReconnectOptions::give_up_after_ns, lost_after_ns
  kFailFast,  // they end with kDisconnected, those in flight as soon as they are back
};

/// How a leg took a request.
struct LegResult {
  /// As ClientRequest::done tells it. kDisconnected: kFailFast, no path. kCanceled: the leg was
  /// removed, or there is none in the slot.
  base::Errc status = base::Errc::kOk;
  /// The status is the server's own word. If not, the server may have done it or not.
  bool answered = false;
  bool has_answer_words = false;
  std::array<uint64_t, 2> answer_words{};
};

namespace group {
class Queue;
}
struct GroupRequest;

/// A request's part at one leg; the queue's.
struct GroupPart : base::ListNode {
  ClientRequest request;
  GroupRequest* whole = nullptr;
  group::Queue* queue = nullptr;
  size_t slot = 0;
};

/// One request to several legs. The caller owns it, its header and its data buffer until `done`
/// runs, exactly once, never inside submit().
struct GroupRequest : base::ListNode {
  Direction direction = Direction::kWrite;  // a read goes to one leg
  std::span<const std::byte> user_header;   // the same for all; no longer than each takes
  DataBuffer data;                          // of the sessions' Domain
  LegMask legs = kAllLegs;                  // those of them that are there at submit()
  std::array<uint64_t, 2> words{};          // as ClientRequest's
  bool has_words = false;
  void (*done)(GroupRequest& request) = nullptr;
  void* context = nullptr;

  // --- in `done`
  LegMask sent_to = 0;  // legs that have a result
  std::array<LegResult, kLegsMax> results;
  LegMask succeeded() const {
    LegMask all = 0;
    for (size_t i = 0; i < kLegsMax; ++i)
      if ((sent_to >> i & 1) != 0 && results[i].status == base::Errc::kOk) all |= LegMask{1} << i;
    return all;
  }
  bool all_ok() const { return sent_to != 0 && succeeded() == sent_to; }

 private:
  friend class group::Queue;
  LegMask due_ = 0;       // no permit yet
  uint32_t running_ = 0;  // parts that have not ended, and one while they are being sent
  std::array<GroupPart, kLegsMax> parts_;
};

struct GroupStatistics {
  uint64_t requests = 0;   // that have ended
  uint64_t in_flight = 0;  // submitted and not ended
  uint64_t waiting = 0;    // of them without all their permits
};

class GroupQueue {
 public:
  virtual ~GroupQueue() = default;
  /// Takes the request; never fails here. What cannot be (a read to several legs, a mask without
  /// any leg) ends with `sent_to` 0.
  virtual void submit(GroupRequest& request) = 0;
  virtual GroupStatistics statistics() const = 0;
};

class Group {
 public:
  virtual ~Group() = default;  // close() first, unless the host is dead
  /// On the home reactor, reactors[0]. kInvalid: no reactors.
  static base::Result<std::unique_ptr<Group>> create(std::vector<base::Reactor*> reactors);
  /// Its slot; ends when all reactors know the leg: what is submitted from then on may go there.
  /// kInvalid: another number of reactors. kExists: the session is a leg. kNoSpace: kLegsMax are
  /// there.
  virtual base::Task<base::Result<size_t>> add_leg(ClientSession& session, LegPolicy policy) = 0;
  /// From here on nothing is sent there; ends when nothing is in flight there any more: the session
  /// may be closed. kNotFound: no such leg, or it is being removed.
  virtual base::Task<base::Status> remove_leg(size_t slot) = 0;
  virtual LegMask legs() const = 0;  // without those that are being removed
  virtual GroupQueue& queue(size_t reactor_index) = 0;
  /// Removes all legs, and waits for removals and additions that are under way. No request may be
  /// submitted any more; ends when `done` of each has run.
  virtual base::Task<void> close() = 0;
};

}  // namespace braid::trs
