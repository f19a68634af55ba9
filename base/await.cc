#include "base/await.h"

#include "base/reactor_private.h"

namespace braid::base {

/// Shared by the waiting task and the worker; whoever is last destroys it.
struct Reactor::OffloadAwaiter::State {
  State(std::shared_ptr<Mailbox> m, std::function<void()> w)
      : mailbox(std::move(m)), work(std::move(w)) {}
  const std::shared_ptr<Mailbox> mailbox;
  std::function<void()> work;      // the worker's
  std::coroutine_handle<> waiter;  // the reactor's; null: the task is gone
};

Reactor::OffloadAwaiter::OffloadAwaiter(Reactor& reactor, std::function<void()> work)
    : host_(reactor.host_), state_(std::make_shared<State>(reactor.mailbox_, std::move(work))) {}

Reactor::OffloadAwaiter::~OffloadAwaiter() {
  state_->waiter = nullptr;
}

void Reactor::OffloadAwaiter::await_suspend(std::coroutine_handle<> waiter) {
  state_->waiter = waiter;
  host_.execute([state = state_] {
    state->work();
    state->work = nullptr;  // what it captured goes here, on the worker
    const std::lock_guard lock(state->mailbox->mutex);
    if (state->mailbox->reactor == nullptr) return;
    state->mailbox->reactor->post([state] {
      if (state->waiter) state->waiter.resume();
    });
  });
}

}  // namespace braid::base
