#include "trs/server/worker.h"

namespace braid::trs::server {

Worker::Worker(vhca::Device& device, base::Reactor& reactor,
               std::unique_ptr<vhca::CompChannel> channel)
    : reactor_(reactor), td_(device.create_td()), channel_(std::move(channel)) {
  watch_.ready = &channel_ready;
  watch_.context = this;
}

Worker::~Worker() {
  if (watching_) reactor_.io().unwatch(watch_);
}

void Worker::start() {
  reactor_.post([this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    reactor_.io().watch(channel_->event(), watch_);
    watching_ = true;
    reactor_.add(*this);
  });
}

void Worker::stop(std::function<void()> stopped) {
  reactor_.post([this, alive = std::weak_ptr<char>(alive_), run = std::move(stopped)] {
    if (alive.expired()) return;
    base::Poller::unlink();
    if (watching_) reactor_.io().unwatch(watch_);
    watching_ = false;
    run();
  });
}

void Worker::channel_ready(base::Watch& watch) {
  auto& self = *static_cast<Worker*>(watch.context);
  self.channel_->event().consume();
  while (vhca::Cq* cq = self.channel_->next_event()) cq->ack_events(1);
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
  for (Queue* queue = queues_.front(); queue != nullptr; queue = queues_.next(*queue)) queue->arm();
  return !poll();
}

}  // namespace braid::trs::server
