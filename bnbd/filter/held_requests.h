// Requests that a filter holds until their time, each for its own: a pairing heap through the
// requests themselves, and one timer.
//
//   device_words of a request: [0] when it is due, [1] its first child, [2] its next sibling
//
// hold() costs a comparison; the next one is found in logarithmic time on average. No memory.
//
// Threads: the reactor's, but for count().
#pragma once

#include "base/reactor.h"
#include "base/single_writer.h"
#include "bnbd/block.h"

namespace braid::bnbd::filter {

class HeldRequests {
 public:
  /// Requests go to `below` when they are due.
  HeldRequests(base::Reactor& reactor, BlockDevice& below)
      : reactor_(reactor), below_(below), timer_(&HeldRequests::due, this) {}
  HeldRequests(const HeldRequests&) = delete;
  HeldRequests& operator=(const HeldRequests&) = delete;

  /// `due_ns` lies in the future. After let_go() it is passed on at once.
  void hold(BlockRequest& request, uint64_t due_ns);
  /// Passes on what is held, and holds nothing from now on.
  void let_go();
  bool lets_go() const { return let_go_; }
  uint64_t count() const { return base::read_shared(count_); }

 private:
  static void due(base::Timer& timer);
  void pass_until(uint64_t now_ns);
  BlockRequest& pop();
  static BlockRequest* merge(BlockRequest* a, BlockRequest* b);
  static BlockRequest* merge_siblings(BlockRequest* first);

  base::Reactor& reactor_;
  BlockDevice& below_;
  base::Timer timer_;
  BlockRequest* root_ = nullptr;  // the one that is due first
  uint64_t count_ = 0;
  bool let_go_ = false;
};

}  // namespace braid::bnbd::filter
