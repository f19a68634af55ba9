// AsyncEvents: what happened to a device's QPs and CQs that no completion tells, until it is asked
// for (Device::next_async_event). Each object brings the nodes in which its events wait, so that
// raising one allocates nothing and has always room.
//
// Threads: any. The lock stands below all others.
#pragma once

#include <memory>
#include <optional>

#include "base/host.h"
#include "base/intrusive_list.h"
#include "vhca/device.h"
#include "vhca/soft/spin_lock.h"

namespace braid::vhca::soft {

/// One event, raised or not, of one object.
struct AsyncNode : base::ListNode {
  AsyncEvent event;
};

class AsyncEvents {
 public:
  explicit AsyncEvents(std::unique_ptr<base::Event> event) : event_(std::move(event)) {}

  base::Event& event() { return *event_; }
  std::optional<AsyncEvent> next();
  /// Behind those raised before. A node that waits already stays as it is.
  void raise(AsyncNode& node, const AsyncEvent& event);
  /// The object goes, or begins anew: nobody hears of it any more.
  void forget(AsyncNode& node);

 private:
  std::optional<AsyncEvent> pop();

  const std::unique_ptr<base::Event> event_;
  SpinLock lock_{true};
  base::IntrusiveList<AsyncNode> raised_;
};

}  // namespace braid::vhca::soft
