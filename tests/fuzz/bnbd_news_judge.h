// When a client asks for news (docs/bnbd-wire.md, "News"), judged at a hostile server that gives
// notice of them: not before it is told to, nor more often than it may, whatever it is told.
#pragma once

#include <cstdint>

#include "tests/fuzz/two_party.h"

namespace braid::bnbd::two_party {

class NewsJudge {
 public:
  /// Something other than the server may keep questions or answers, or have them come at once.
  void give_up() { judges_ = false; }
  void notice_given() { ++reasons_; }
  /// A question has come. `pushed`: the server has shown that it gives notice.
  void asked(bool pushed, uint64_t now_ns) {
    const uint64_t before_ns = asked_at_ns_;
    asked_at_ns_ = now_ns;
    ++questions_;
    if (!judges_ || !pushed) return;
    fuzz::require(questions_ == 1 || now_ns - before_ns >= kPauseNs,
                  "a server is asked for news each 10 ms at most");
    fuzz::require(questions_ <= reasons_, "who has no notice asks for no news");
  }
  /// Its answer lets the client ask once more: it failed, came late, or told something.
  void answered_oddly() { ++reasons_; }
  uint64_t questions() const { return questions_; }

 private:
  // By the clock of the client; both ends take some microseconds over it.
  static constexpr uint64_t kPauseNs = 9 * base::kMillisecond;

  bool judges_ = true;
  uint64_t asked_at_ns_ = 0;
  uint64_t questions_ = 0;
  uint64_t reasons_ = 0;  // to ask
};

}  // namespace braid::bnbd::two_party
