#include "vhca/soft/async_events.h"

#include <mutex>

namespace braid::vhca::soft {

std::optional<AsyncEvent> AsyncEvents::pop() {
  const std::lock_guard guard(lock_);
  const AsyncNode* const node = raised_.pop_front();
  return node != nullptr ? std::optional(node->event) : std::nullopt;
}

std::optional<AsyncEvent> AsyncEvents::next() {
  if (const std::optional<AsyncEvent> event = pop()) return event;
  // The flag goes down before the last look: what comes after raises it again.
  event_->consume();
  return pop();
}

void AsyncEvents::raise(AsyncNode& node, const AsyncEvent& event) {
  {
    const std::lock_guard guard(lock_);
    if (node.linked()) return;
    node.event = event;
    raised_.push_back(node);
  }
  event_->signal();
}

void AsyncEvents::forget(AsyncNode& node) {
  const std::lock_guard guard(lock_);
  node.unlink();
}

}  // namespace braid::vhca::soft
