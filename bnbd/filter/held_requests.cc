#include "bnbd/filter/held_requests.h"

#include <bit>

namespace braid::bnbd::filter {

namespace {

uint64_t due_of(const BlockRequest& request) {
  return request.device_words[0];
}
BlockRequest* link(const BlockRequest& request, size_t word) {
  return reinterpret_cast<BlockRequest*>(static_cast<uintptr_t>(request.device_words[word]));
}
void set_link(BlockRequest& request, size_t word, BlockRequest* to) {
  request.device_words[word] = reinterpret_cast<uintptr_t>(to);
}
constexpr size_t kChild = 1;
constexpr size_t kSibling = 2;

}  // namespace

void HeldRequests::hold(BlockRequest& request, uint64_t due_ns) {
  if (let_go_) return below_.submit(request);
  if (request.flushes()) below_.note_flush(request.flush_note);
  request.device_words = {due_ns, 0, 0};
  root_ = merge(root_, &request);
  base::add_shared(count_, 1);
  if (root_ == &request) reactor_.schedule(timer_, due_ns);
}

void HeldRequests::let_go() {
  let_go_ = true;
  reactor_.cancel(timer_);
  pass_until(base::kNever);
}

void HeldRequests::due(base::Timer& timer) {
  auto& self = *static_cast<HeldRequests*>(timer.context);
  self.pass_until(self.reactor_.now_ns());
  if (self.root_ != nullptr) self.reactor_.schedule(timer, due_of(*self.root_));
}

/// A request may end inside submit(), and its user submit the next one, which may be held.
void HeldRequests::pass_until(uint64_t now_ns) {
  while (root_ != nullptr && due_of(*root_) <= now_ns) below_.submit(pop());
}

BlockRequest& HeldRequests::pop() {
  BlockRequest& first = *root_;
  root_ = merge_siblings(link(first, kChild));
  base::subtract_shared(count_, 1);
  return first;
}

/// One heap of two, of which either may be null. Of those due at once the first goes first.
BlockRequest* HeldRequests::merge(BlockRequest* a, BlockRequest* b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  if (due_of(*b) < due_of(*a)) std::swap(a, b);
  set_link(*b, kSibling, link(*a, kChild));
  set_link(*a, kChild, b);
  return a;
}

/// Pairs from the first to the last, which are then joined from the last to the first: this order
/// makes pop() logarithmic. No recursion: there may be many.
BlockRequest* HeldRequests::merge_siblings(BlockRequest* first) {
  BlockRequest* pairs = nullptr;  // the last one first, linked as siblings
  while (first != nullptr) {
    BlockRequest* const second = link(*first, kSibling);
    BlockRequest* const rest = second == nullptr ? nullptr : link(*second, kSibling);
    set_link(*first, kSibling, nullptr);
    if (second != nullptr) set_link(*second, kSibling, nullptr);
    BlockRequest* const pair = merge(first, second);
    set_link(*pair, kSibling, pairs);
    pairs = pair;
    first = rest;
  }
  BlockRequest* all = nullptr;
  while (pairs != nullptr) {
    BlockRequest* const rest = link(*pairs, kSibling);
    set_link(*pairs, kSibling, nullptr);
    all = merge(all, pairs);
    pairs = rest;
  }
  return all;
}

}  // namespace braid::bnbd::filter
