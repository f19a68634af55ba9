#include "trs/server/worker.h"

namespace braid::trs::server {

Worker::~Worker() {
  unwatch();
}

base::Status Worker::add_endpoint(vhca::Device& device) {
  auto share = std::make_unique<Share>();
  share->td = device.create_td();
  BRAID_TRY(share->channel, device.create_comp_channel());
  share->watch.ready = &channel_ready;
  share->watch.context = share->channel.get();
  shares_.push_back(std::move(share));
  return {};
}

void Worker::start() {
  reactor_.post([this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    for (auto& share : shares_) reactor_.io().watch(share->channel->event(), share->watch);
    watching_ = true;
    reactor_.add(*this);
  });
}

void Worker::unwatch() {
  if (!std::exchange(watching_, false)) return;
  for (auto& share : shares_) reactor_.io().unwatch(share->watch);
}

void Worker::stop(std::function<void()> stopped) {
  reactor_.post([this, alive = std::weak_ptr<char>(alive_), run = std::move(stopped)] {
    if (alive.expired()) return;
    base::Poller::unlink();
    unwatch();
    run();
  });
}

void Worker::channel_ready(base::Watch& watch) {
  auto& channel = *static_cast<vhca::CompChannel*>(watch.context);
  channel.event().consume();
  while (vhca::Cq* cq = channel.next_event()) cq->ack_events(1);
}

bool Worker::poll() {
  turns_.begin(reactor_.now_ns(), sessions_.load(std::memory_order_relaxed));
  size_t did = 0;
  // A queue may leave the list while it is polled, but no other.
  for (Queue* queue = queues_.front(); queue != nullptr;) {
    Queue* const next = queues_.next(*queue);
    did += poll_its_part(*queue);
    queue = next;
  }
  if (turns_.rest() > 0) did += use_rest();
  if (long_ > 0) did += do_part();
  return did > 0;
}

size_t Worker::poll_its_part(Queue& queue) {
  const size_t left = turns_.left(queue.turn_share());
  if (queue.closing()) return queue.poll();  // is soon drained, and asks for nothing any more
  if (left == 0) return 0;
  const size_t took = queue.poll(left);
  turns_.took(queue.turn_share(), took);  // may be another: whose it is may have been proved
  // Others of its session come before it in the next turn.
  if (took == left) to_the_end(queue);
  return took;
}

/// What some have left of the turn is for those that want more than their part.
size_t Worker::use_rest() {
  size_t did = 0;
  for (Queue* queue = queues_.front(); queue != nullptr && turns_.rest() > 0;) {
    Queue* const next = queues_.next(*queue);
    if (!queue->closing() && turns_.left(queue->turn_share()) == 0) {
      const size_t took = queue->poll(turns_.rest());
      turns_.took(queue->turn_share(), took);
      if (turns_.rest() == 0) to_the_end(*queue);
      did += took;
    }
    queue = next;
  }
  return did;
}

/// One part of what is long in each turn, of the session that has waited longest.
size_t Worker::do_part() {
  Queue* chosen = nullptr;
  for (Queue* queue = queues_.front(); queue != nullptr; queue = queues_.next(*queue)) {
    if (!queue->has_part()) continue;
    if (chosen == nullptr || queue->turn_share().part_turn < chosen->turn_share().part_turn) {
      chosen = queue;
    }
  }
  if (chosen == nullptr) return 0;
  chosen->turn_share().part_turn = turns_.turn();
  chosen->do_part();
  to_the_end(*chosen);
  return 1;
}

void Worker::to_the_end(Queue& queue) {
  queue.base::ListNode::unlink();
  queues_.push_back(queue);
}

bool Worker::arm() {
  if (reactor_.host().mutant("wakeup-lost")) return true;
  for (Queue* queue = queues_.front(); queue != nullptr; queue = queues_.next(*queue)) queue->arm();
  return !poll();
}

}  // namespace braid::trs::server
