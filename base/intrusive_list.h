// A doubly linked list through its elements: no allocation, an element unlinks itself, order is
// insertion order. One thread. An element is in at most one list per ListNode base; destroying a
// linked element unlinks it.
#pragma once

#include "base/result.h"

namespace braid::base {

class ListNode {
 public:
  ListNode() = default;
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;
  ~ListNode() { unlink(); }

  bool linked() const { return next_ != nullptr; }
  void unlink() {
    if (next_ == nullptr) return;
    prev_->next_ = next_;
    next_->prev_ = prev_;
    next_ = prev_ = nullptr;
  }

 private:
  template <typename T>
  friend class IntrusiveList;
  ListNode* next_ = nullptr;
  ListNode* prev_ = nullptr;
};

/// T derives from ListNode (unambiguously).
template <typename T>
class IntrusiveList {
 public:
  IntrusiveList() { head_.next_ = head_.prev_ = &head_; }
  ~IntrusiveList() {
    clear();
    head_.next_ = head_.prev_ = nullptr;
  }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;

  bool empty() const { return head_.next_ == &head_; }
  T* front() { return empty() ? nullptr : static_cast<T*>(head_.next_); }
  T* next(T& element) {
    return element.ListNode::next_ == &head_ ? nullptr : static_cast<T*>(element.ListNode::next_);
  }
  void push_back(T& element) { insert(element, *head_.prev_); }
  void push_front(T& element) { insert(element, head_); }
  T* pop_front() {
    T* first = front();
    if (first != nullptr) static_cast<ListNode*>(first)->unlink();
    return first;
  }
  void clear() {
    while (pop_front() != nullptr) {
    }
  }
  /// Moves all of `other` behind the last element.
  void take_all(IntrusiveList& other) {
    while (T* element = other.pop_front()) push_back(*element);
  }

 private:
  static void insert(ListNode& node, ListNode& after) {
    BRAID_ASSERT(!node.linked());
    node.prev_ = &after;
    node.next_ = after.next_;
    after.next_->prev_ = &node;
    after.next_ = &node;
  }
  ListNode head_;
};

}  // namespace braid::base
