#include "trs/group/group.h"

#include <algorithm>

namespace braid::trs {

base::Result<std::unique_ptr<Group>> Group::create(std::vector<base::Reactor*> reactors) {
  if (reactors.empty()) return base::make_error(base::Errc::kInvalid, "a group without a reactor");
  return std::unique_ptr<Group>(std::make_unique<group::GroupImpl>(reactors));
}

namespace group {

using base::Errc;
using base::make_error;

GroupImpl::GroupImpl(const std::vector<base::Reactor*>& reactors)
    : home_(*reactors.front()), changed_(std::make_shared<base::Signal>(home_)) {
  for (base::Reactor* reactor : reactors) {
    queues_.push_back(std::make_unique<Queue>(*reactor));
    queues_.back()->start();
  }
}

Queue::Done GroupImpl::reply(const std::shared_ptr<size_t>& due) {
  return [&home = home_, due, changed = changed_] {
    home.post([due, changed] {
      --*due;
      changed->notify_all();
    });
  };
}

base::Task<base::Result<size_t>> GroupImpl::add_leg(ClientSession& session, LegPolicy policy) {
  if (session.reactors() != queues_.size()) {
    co_return make_error(Errc::kInvalid, "a session over {} reactors in a group over {}",
                         session.reactors(), queues_.size());
  }
  size_t slot = kLegsMax;
  for (size_t i = kLegsMax; i-- > 0;) {
    if (slots_[i].state == State::kNone) slot = i;
    if (slots_[i].state == State::kNone || slots_[i].session != &session) continue;
    co_return make_error(Errc::kExists, "the session is the group's leg {} already", i);
  }
  if (slot == kLegsMax) co_return make_error(Errc::kNoSpace, "the group has {} legs", kLegsMax);
  slots_[slot] = {State::kComing, &session};
  const auto due = std::make_shared<size_t>(queues_.size());
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i]->attach(slot, session.queue(i), session.id(), policy, reply(due));
  }
  const std::shared_ptr<base::Signal> changed = changed_;
  while (*due > 0) co_await changed->wait();
  slots_[slot].state = State::kThere;
  changed->notify_all();
  co_return slot;
}

base::Task<base::Status> GroupImpl::remove_leg(size_t slot) {
  if (slot >= kLegsMax || slots_[slot].state != State::kThere) {
    co_return make_error(Errc::kNotFound, "the group has no leg {}", slot);
  }
  slots_[slot].state = State::kLeaving;
  const auto due = std::make_shared<size_t>(queues_.size());
  for (const auto& queue : queues_) queue->detach(slot, reply(due));
  const std::shared_ptr<base::Signal> changed = changed_;
  while (*due > 0) co_await changed->wait();
  slots_[slot] = {};
  changed->notify_all();
  co_return base::Status();
}

LegMask GroupImpl::legs() const {
  LegMask all = 0;
  for (size_t i = 0; i < kLegsMax; ++i) {
    if (slots_[i].state == State::kThere) all |= LegMask{1} << i;
  }
  return all;
}

base::Task<void> GroupImpl::close() {
  const std::shared_ptr<base::Signal> changed = changed_;
  for (size_t i = 0; i < kLegsMax; ++i) {
    // One that is coming or leaving belongs to a task that has not ended, and to requests that may
    // be on a wire.
    const State& state = slots_[i].state;
    while (state == State::kComing || state == State::kLeaving) co_await changed->wait();
    if (state == State::kThere) (void)co_await remove_leg(i);
  }
  const auto due = std::make_shared<size_t>(queues_.size());
  for (const auto& queue : queues_) queue->stop(reply(due));
  while (*due > 0) co_await changed->wait();
}

}  // namespace group
}  // namespace braid::trs
