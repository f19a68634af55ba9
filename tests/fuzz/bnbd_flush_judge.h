// What a flush of a remote device may vouch for (docs/bnbd.md, "Flush"), judged from both ends: a
// hostile server says what it does with each change, the device's user what it is told. By block:
// changes have numbers in the order of their submission, and no two of a block run at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "tests/fuzz/two_party.h"

namespace braid::bnbd::two_party {

class FlushJudge {
 public:
  static constexpr size_t kBlocks = 64;
  using Newest = std::array<uint32_t, kBlocks>;  // number of a change; 0: none

  /// The server breaks rules on which flushes rest: nothing is judged any more.
  void give_up() { judges_ = false; }

  // --- the server: a disk with a volatile cache, which a failed flush or a restart empties

  /// It tells these in an answer to OPEN. Each answer has a larger id.
  void tells_opening(uint32_t id, uint64_t incarnation) {
    openings_[id] = {incarnation, failures_};
  }
  /// Whether a request names the opening that is in use, or a later one, which is in use then.
  bool uses(uint32_t id) {
    const auto its = openings_.find(id);
    if (its == openings_.end() || id < in_use_) return false;
    if (in_use_ != 0 && openings_[in_use_].incarnation != its->second.incarnation) lose();
    if (id != in_use_) failures_seen_ = its->second.failures;
    in_use_ = id;
    return true;
  }
  void changes(size_t block, bool durable) {
    if (block >= kBlocks) return;
    cached_[block] = submitted_[block];
    if (durable) durable_[block] = submitted_[block];
  }
  /// A flush by this connection. False: it has to fail, to tell of one that failed elsewhere.
  bool flushes(uint64_t connection) {
    if (failures_ != failures_seen_ && told_[connection] != failures_) {
      told_[connection] = failures_;
      return false;
    }
    durable_ = cached_;
    return true;
  }
  void flush_fails(uint64_t connection) {
    lose();
    told_[connection] = ++failures_;
  }
  /// A failed flush has to show in the incarnation: its answer may be lost.
  uint64_t failures() const { return failures_; }

  // --- the user

  bool may_change(size_t block) const { return block >= kBlocks || !changing_[block]; }
  void change_begins(size_t block) {
    if (block >= kBlocks) return;
    changing_[block] = true;
    submitted_[block] = ++changes_;
  }
  void change_ends(size_t block, bool well, bool durable) {
    if (block >= kBlocks) return;
    changing_[block] = false;
    if (!well) return;
    known_[block] = submitted_[block];
    if (!durable || !judges_) return;
    fuzz::require(durable_[block] >= known_[block], "a durable write is durable when it ends");
  }
  struct Flush {
    Newest covers{};    // what its user knew to be done
    Newest reported{};  // and of that what has been reported lost
  };
  Flush flush_begins() const { return {known_, reported_}; }
  void flush_ends(const Flush& flush, bool well) {
    for (size_t block = 0; block < kBlocks; ++block) {
      const uint32_t covers = flush.covers[block];
      if (durable_[block] >= covers) continue;
      const bool may_be_lost = cached_[block] < covers || restart_told();
      if (well && judges_) {
        fuzz::require(flush.reported[block] >= covers, "a flush vouches for what is durable");
      } else if (may_be_lost) {
        reported_[block] = std::max(reported_[block], covers);
      }
    }
  }

 private:
  struct Opening {
    uint64_t incarnation = 0;
    uint64_t failures = 0;  // of flushes, before it
  };
  void lose() { cached_ = durable_; }
  /// The client may know of a restart of which no request has come here.
  bool restart_told() {
    const uint64_t now = openings_[in_use_].incarnation;
    return std::any_of(openings_.upper_bound(in_use_), openings_.end(),
                       [now](const auto& each) { return each.second.incarnation != now; });
  }

  bool judges_ = true;
  std::map<uint32_t, Opening> openings_;  // by device id
  uint32_t in_use_ = 0;                   // device id
  uint64_t failures_ = 0, failures_seen_ = 0;
  std::map<uint64_t, uint64_t> told_;  // failures, by connection
  Newest cached_{}, durable_{};

  uint32_t changes_ = 0;
  Newest submitted_{}, known_{}, reported_{};
  std::array<bool, kBlocks> changing_{};
};

}  // namespace braid::bnbd::two_party
