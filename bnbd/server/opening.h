// What a session's client is opening. The operator takes what is found here as if it were open
// already (docs/bnbd.md, "What an operator takes away").
//
// OPENs of a session run beside each other, and one that found its disk slow is asked again after a
// pause of the client's: in between it still counts. What is taken is refused: the OPEN that is
// under way, or, in a pause, the next one.
//
// One reactor, the home. A session owns its Openings; they outlive each Opening.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/reactor.h"

namespace braid::bnbd::server {

/// Longer than a client takes to ask again.
inline constexpr uint64_t kAsksAgainNs = 15 * base::kSecond;

class Openings {
 public:
  /// One export that the client wants.
  struct Wish {
    std::string export_name;
    unsigned under_way = 0;  // OPENs
    uint64_t until_ns = 0;   // with none under way: it is asked again before, or not any more
    bool taken = false;      // by the operator
  };

  explicit Openings(base::Reactor& home) : home_(home) {}
  Openings(const Openings&) = delete;

  /// Those of this export, of all if it is empty, that are not taken yet. Valid until the next
  /// OPEN begins or ends.
  std::vector<Wish*> wishes(const std::string& export_name);

 private:
  friend class Opening;
  Wish& begin(const std::string& export_name);
  void end(Wish& wish, bool asks_again);
  void forget_old();

  base::Reactor& home_;
  std::vector<std::unique_ptr<Wish>> wishes_;  // in the order of their first OPENs
};

/// An OPEN under way.
class Opening {
 public:
  Opening(Openings& all, const std::string& export_name)
      : all_(all), wish_(all.begin(export_name)) {}
  ~Opening() { all_.end(wish_, asks_again_); }
  Opening(const Opening&) = delete;

  bool taken() const { return wish_.taken; }
  /// It ends without an outcome, and its client comes again.
  void asks_again() { asks_again_ = true; }

 private:
  Openings& all_;
  Openings::Wish& wish_;
  bool asks_again_ = false;
};

}  // namespace braid::bnbd::server
