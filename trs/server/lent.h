// Memory outside the chunks from which reads are answered. Each path has a PD of its own, so
// that the keys of one reach nothing of another; so each path registers for itself what its session
// uses, in the slot that the handle names (register.cc). Thread: the home reactor; queues read the
// slot of a handle that the session uses.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/reactor.h"

#include "vhca/device.h"

namespace braid::trs::server {

class ServerImpl;

/// Stretches of memory that a server lends at one time.
inline constexpr uint32_t kLentMax = 4096;

/// What the user holds. Its keys are no keys of the device.
class LentMemory final : public vhca::Mr {
 public:
  LentMemory(ServerImpl& server, std::weak_ptr<char> server_alive, uint32_t slot);
  ~LentMemory() override;
  uint32_t slot() const { return slot_; }
  /// Gone with the object.
  std::weak_ptr<char> alive() const { return alive_; }

 private:
  ServerImpl& server_;
  const std::weak_ptr<char> server_alive_;  // the server may go first
  const uint32_t slot_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

/// How many registrations of a device lent memory may have, of all its paths: without those of
/// chunks no client could be served at all.
struct LentQuota {
  size_t used = 0;  // what is kept for paths that may come back included
  size_t max = 0;
};

/// What a session has of the quota of a device. A path that is lost leaves its part: it can come
/// back only if it can register all that its session answers from, whatever others have taken
/// since, and what its session has begun to answer from meanwhile. As many paths as are away: who
/// of them comes back is not asked. Goes with the session.
class LentShare {
 public:
  explicit LentShare(LentQuota& quota) : quota_(quota) {}
  ~LentShare() { quota_.used -= kept_; }
  LentShare(const LentShare&) = delete;
  LentShare& operator=(const LentShare&) = delete;

  const LentQuota& quota() const { return quota_; }
  /// `answered`: the session answers from it already, so what was kept is for it.
  bool room(bool answered) const { return (answered && kept_ > 0) || quota_.used < quota_.max; }
  /// True: of what was kept.
  bool take(bool answered) {
    const bool of_kept = answered && kept_ > 0;
    of_kept ? --kept_ : ++quota_.used;
    return of_kept;
  }
  void give_back(size_t count) { quota_.used -= count; }
  /// What take() had of it, by a path that is away still.
  void put_back(size_t count) {
    kept_ += count;
    if (away_ == 0) drop_kept();
  }
  /// For the paths that are away, before the session answers from one memory more. False: there is
  /// no room for it.
  bool reserve() {
    if (quota_.max - std::min(quota_.used, quota_.max) < away_) return false;
    kept_ += away_;
    quota_.used += away_;
    return true;
  }
  /// The session answers from one memory less, which every path has taken back.
  void release() {
    const size_t freed = std::min(kept_, away_);
    kept_ -= freed;
    quota_.used -= freed;
  }
  /// A path that had all is lost, with so many registrations.
  void left(size_t count) {
    ++away_;
    kept_ += count;
  }
  /// A path has all. With the last that was away, what is left of their part goes back.
  void came() {
    if (away_ > 0) --away_;
    if (away_ == 0) drop_kept();
  }

 private:
  void drop_kept() { quota_.used -= std::exchange(kept_, 0); }

  LentQuota& quota_;
  size_t kept_ = 0;  // of quota_.used
  size_t away_ = 0;  // paths
};

/// What a path has registered, by slot. A queue looks up what was put there before its session used
/// it; meanwhile others come and go, each in memory of its own.
class LentTable {
 public:
  explicit LentTable(LentShare& share) : share_(share) {}
  ~LentTable() {
    if (whole_) {
      share_.left(count_);
    } else {
      share_.put_back(of_kept_);
      share_.give_back(count_ - of_kept_);
    }
  }
  LentTable(const LentTable&) = delete;
  LentTable& operator=(const LentTable&) = delete;

  bool has(uint32_t slot) const {
    const auto& block = blocks_[slot / kBlock];
    return block != nullptr && (*block)[slot % kBlock].registered != nullptr;
  }
  /// Any thread, as above.
  uint32_t lkey(uint32_t slot) const {
    return (*blocks_[slot / kBlock])[slot % kBlock].registered->lkey;
  }
  /// Whether the device has one more for lent memory. What is under way at that moment is not
  /// counted. `answered`: as of LentShare.
  bool room(bool answered) const { return share_.room(answered); }
  /// All that its session uses is there, for the first time.
  void whole() {
    if (!std::exchange(whole_, true)) share_.came();
  }
  /// The slot is free.
  void put(uint32_t slot, bool answered, std::unique_ptr<vhca::Mr> registered) {
    auto& block = blocks_[slot / kBlock];
    if (!block) block = std::make_unique<Block>();
    const bool of_kept = share_.take(answered);
    (*block)[slot % kBlock] = {std::move(registered), of_kept};
    of_kept_ += of_kept ? 1 : 0;
    ++count_;
  }
  void take_back(uint32_t slot) {
    if (!has(slot)) return;
    const Entry gone = std::exchange((*blocks_[slot / kBlock])[slot % kBlock], Entry{});
    of_kept_ -= gone.of_kept ? 1 : 0;
    --count_;
    gone.of_kept && !whole_ ? share_.put_back(1) : share_.give_back(1);
  }

 private:
  static constexpr uint32_t kBlock = 64;
  struct Entry {
    std::unique_ptr<vhca::Mr> registered;
    bool of_kept = false;  // by a path that was away
  };
  using Block = std::array<Entry, kBlock>;
  LentShare& share_;
  size_t count_ = 0;
  size_t of_kept_ = 0;
  bool whole_ = false;
  std::array<std::unique_ptr<Block>, kLentMax / kBlock> blocks_;
};

/// That a session answers from a stretch of lent memory, or is about to.
struct LentUse {
  explicit LentUse(const LentMemory& of) : memory(&of) {}
  const LentMemory* memory;
  bool granted = false;  // every path has it, and has had it before it carried requests
  base::Status refused;  // why it is over
};

/// Those of a session.
class LentUses {
 public:
  explicit LentUses(base::Reactor& home) : changed_(std::make_shared<base::Signal>(home)) {}

  /// That of this memory, begun if there is none.
  std::shared_ptr<LentUse> ask(const LentMemory& memory);
  /// Null: there is none.
  const LentUse* find(uint32_t slot) const;
  /// Whether the session answers from it.
  bool answered(uint32_t slot) const {
    const LentUse* const use = find(slot);
    return use != nullptr && use->granted;
  }
  /// The first that the path has not registered, or null.
  const LentMemory* missing(const LentTable& registered) const;
  /// Ends it for this reason.
  void end(uint32_t slot, const base::Error& why);
  /// Something has been registered, or need not be any more.
  const std::shared_ptr<base::Signal>& changed() const { return changed_; }

 private:
  std::map<uint32_t, std::shared_ptr<LentUse>> uses_;  // by slot; shared with who asks
  const std::shared_ptr<base::Signal> changed_;        // shared with them, too
};

}  // namespace braid::trs::server
