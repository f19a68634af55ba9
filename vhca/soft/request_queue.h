// Requests to connect that a listener has and nobody took yet.
//
// Shared by the listener, or listeners at one address, and the tasks that wait in its next(): these
// end with kCanceled when the listener goes. Threads: the listener's reactor.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "base/reactor.h"
#include "vhca/device.h"

namespace braid::vhca::soft {

class RequestQueue {
 public:
  explicit RequestQueue(base::Reactor& reactor) : reactor_(reactor), changed_(reactor) {}

  size_t size() const { return requests_.size(); }
  void push(std::unique_ptr<ConnectRequest> request) {
    requests_.push_back(std::move(request));
    notify();
  }
  /// Drops all requests and ends all waiters, for good.
  void close() {
    closed_ = true;
    requests_.clear();
    notify();
  }
  static base::Task<base::Result<std::unique_ptr<ConnectRequest>>> take(
      std::shared_ptr<RequestQueue> queue) {
    while (queue->requests_.empty()) {
      if (queue->closed_) {
        co_return base::make_error(base::Errc::kCanceled, "the listener was closed");
      }
      co_await queue->changed_.wait();
    }
    std::unique_ptr<ConnectRequest> request = std::move(queue->requests_.front());
    queue->requests_.pop_front();
    co_return request;
  }

 private:
  void notify() {
    changed_.notify_all();
    reactor_.wake();
  }
  base::Reactor& reactor_;
  std::deque<std::unique_ptr<ConnectRequest>> requests_;
  bool closed_ = false;
  base::Signal changed_;
};

}  // namespace braid::vhca::soft
