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
  bool did = false;
  // A queue may leave the list while it is polled, but no other.
  for (Queue* queue = queues_.front(); queue != nullptr;) {
    Queue* const next = queues_.next(*queue);
    did |= queue->poll();
    queue = next;
  }
  return did;
}

bool Worker::arm() {
  if (reactor_.host().mutant("wakeup-lost")) return true;
  for (Queue* queue = queues_.front(); queue != nullptr; queue = queues_.next(*queue)) queue->arm();
  return !poll();
}

}  // namespace braid::trs::server
