// Private parts of Reactor that reactor.cc and await.cc share.
#pragma once

#include <mutex>

#include "base/reactor.h"

namespace braid::base {

/// Where other threads find the reactor, or that it is gone. A lock, so that the reactor cannot go
/// while somebody posts: control paths only.
struct Reactor::Mailbox {
  std::mutex mutex;
  Reactor* reactor = nullptr;
};

/// A function on its way to the reactor; owns itself.
struct Reactor::FunctionMessage : Message {
  explicit FunctionMessage(std::function<void()> f) : function(std::move(f)) {
    run = &FunctionMessage::call;
  }
  static void call(Message& message) {
    const std::unique_ptr<FunctionMessage> self(static_cast<FunctionMessage*>(&message));
    self->function();
  }
  std::function<void()> function;
};

}  // namespace braid::base
