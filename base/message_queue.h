// Messages to a reactor: any thread sends, one thread receives, nothing is allocated and nobody
// waits for anybody.
//
// A linked list through the messages (the shape is Dmitry Vyukov's): senders swap themselves in at
// the head and then link the element before them to themselves; the receiver walks from the tail.
//
//   tail_ -> m -> m -> m ... m <- head_        `stub_` stands in when the list would be empty
//
// Between a sender's two steps the list is cut: pop() then reports nothing although empty() is
// false. The receiver looks again; it must not sleep.
#pragma once

#include <atomic>

namespace braid::base {

/// A message to another reactor: a preallocated object with a function to run there. Owned by the
/// sender until `run` is called on the target; from then on by the code of `run`.
struct Message {
  void (*run)(Message& message) = nullptr;
  std::atomic<Message*> next{nullptr};  // private to the queue
};

class MessageQueue {
 public:
  MessageQueue() : head_(&stub_), tail_(&stub_) {}
  MessageQueue(const MessageQueue&) = delete;
  MessageQueue& operator=(const MessageQueue&) = delete;

  /// Any thread. Sequentially consistent, so that "push, then look whether the receiver sleeps"
  /// and "say that I sleep, then look whether I am empty" cannot miss each other.
  void push(Message& message) {
    message.next.store(nullptr, std::memory_order_relaxed);
    Message* const previous = head_.exchange(&message, std::memory_order_seq_cst);
    previous->next.store(&message, std::memory_order_release);
  }

  /// Receiver: the oldest message, or null if there is none or its sender is half-way.
  Message* pop() {
    Message* first = tail_;
    Message* next = first->next.load(std::memory_order_acquire);
    if (first == &stub_) {
      if (next == nullptr) return nullptr;
      first = tail_ = next;
      next = first->next.load(std::memory_order_acquire);
    }
    if (next == nullptr) {
      if (first != head_.load(std::memory_order_acquire)) return nullptr;
      // `first` is the only one. It can leave only when something stands behind it.
      push(stub_);
      next = first->next.load(std::memory_order_acquire);
      if (next == nullptr) return nullptr;
    }
    tail_ = next;
    return first;
  }

  /// Receiver: true only if nothing is there, and nobody is half-way.
  bool empty() const { return tail_ == &stub_ && head_.load(std::memory_order_seq_cst) == &stub_; }

 private:
  alignas(64) std::atomic<Message*> head_;  // the newest; senders
  alignas(64) Message* tail_;               // the oldest, or the stub; receiver
  Message stub_;
};

}  // namespace braid::base
