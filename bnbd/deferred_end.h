// Ends requests in the reactor's next turn: an asynchronous device must not call `done` inside
// submit(). One reactor. Uses device_words[0] of the requests it holds.
#pragma once

#include "base/reactor.h"
#include "bnbd/block.h"

namespace braid::bnbd {

class DeferredEnd {
 public:
  /// `statistics` counts each request at its end.
  DeferredEnd(base::Reactor& reactor, BlockStatistics& statistics)
      : reactor_(reactor), statistics_(statistics), timer_(&DeferredEnd::due, this) {}

  void end(BlockRequest& request, base::Errc status) {
    request.device_words[0] = static_cast<uint64_t>(status);
    request.flush_note.taken = false;
    requests_.push_back(request);
    if (!timer_.pending()) reactor_.schedule_after(timer_, 0);
  }
  bool empty() const { return requests_.empty(); }

 private:
  static void due(base::Timer& timer) {
    auto& self = *static_cast<DeferredEnd*>(timer.context);
    // Those that a callback adds wait for the next turn.
    base::IntrusiveList<BlockRequest> now;
    now.take_all(self.requests_);
    while (BlockRequest* request = now.pop_front()) {
      const auto status = static_cast<base::Errc>(request->device_words[0]);
      self.statistics_.count(*request, status);
      request->done(*request, status);
    }
  }

  base::Reactor& reactor_;
  BlockStatistics& statistics_;
  base::IntrusiveList<BlockRequest> requests_;
  base::Timer timer_;
};

}  // namespace braid::bnbd
