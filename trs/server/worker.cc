#include "trs/server/worker.h"

#include <algorithm>

namespace braid::trs::server {

Worker::~Worker() {
  unwatch();
  for (auto& client : clients_) client->share->wire.on_wait(nullptr);
}

base::Status Worker::add_endpoint(vhca::Device& device) {
  Share share{device, device.create_td(), {}};
  BRAID_TRY(std::shared_ptr<Channel> first, make_channel(device));
  share.channels.push_back(std::move(first));
  shares_.push_back(std::move(share));
  return {};
}

base::Result<std::shared_ptr<Worker::Channel>> Worker::make_channel(vhca::Device& device) {
  auto made = std::make_shared<Channel>();
  BRAID_TRY(made->channel, device.create_comp_channel());
  made->watch.ready = &channel_ready;
  made->watch.context = made->channel.get();
  return made;
}

base::Result<std::shared_ptr<Worker::Channel>> Worker::channel(size_t endpoint) {
  Share& share = shares_[endpoint];
  const auto fewer = [](const auto& one, const auto& other) {
    return one.use_count() < other.use_count();
  };
  const auto emptiest = std::min_element(share.channels.begin(), share.channels.end(), fewer);
  // The share's own use counts.
  if (static_cast<size_t>(emptiest->use_count()) <= kConnectionsPerChannel) return *emptiest;
  BRAID_TRY(std::shared_ptr<Channel> made, make_channel(share.device));
  if (watching_) reactor_.io().watch(made->channel->event(), made->watch);
  return share.channels.emplace_back(std::move(made));
}

void Worker::start() {
  reactor_.post([this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    for (Share& share : shares_) {
      for (auto& each : share.channels) reactor_.io().watch(each->channel->event(), each->watch);
    }
    watching_ = true;
    reactor_.add(*this);
  });
}

void Worker::unwatch() {
  if (!std::exchange(watching_, false)) return;
  for (Share& share : shares_) {
    for (auto& each : share.channels) reactor_.io().unwatch(each->watch);
  }
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
  do {
    Connection::take_events(channel);
  } while (channel.more());
}

// --- who is here

TurnClient& Worker::client_of(const std::shared_ptr<TurnShare>& share) {
  for (const auto& client : clients_) {
    if (client->share == share) return *client;
  }
  TurnClient& client = *clients_.emplace_back(std::make_unique<TurnClient>());
  client.share = share;
  base::add_shared(client_count_, 1);
  share->wire.on_wait([this, &client] {
    client.waits_for_budget = true;
    has_work(client);
  });
  return client;
}

void Worker::join(Queue& queue, const std::shared_ptr<TurnShare>& share) {
  const bool with_data = queue.place.with_data.linked();
  Queue* const polled = polled_;
  leave(queue);
  polled_ = polled;
  TurnClient& client = client_of(share);
  queue.place.client = &client;
  ++client.queues;
  client.awake.push_back(queue);
  if (with_data) data_waits(queue);
  has_work(client);
}

/// The client may be in the middle of its turn: it goes in a later one.
void Worker::leave(Queue& queue) {
  TurnClient* const client = std::exchange(queue.place.client, nullptr);
  if (client == nullptr) return;
  if (polled_ == &queue) polled_ = nullptr;
  data_waits_no_more(queue);
  queue.base::ListNode::unlink();
  --client->queues;
  has_work(*client);
}

void Worker::woken(Queue& queue) {
  TurnClient* const client = queue.place.client;
  if (client == nullptr) return;
  queue.base::ListNode::unlink();
  (queue.closing() ? client->closing : client->awake).push_back(queue);
  has_work(*client);
}

void Worker::data_waits(Queue& queue) {
  ++with_data_;
  queue.place.client->with_data.push_back(queue.place.with_data);
  has_work(*queue.place.client);
}

void Worker::data_waits_no_more(Queue& queue) {
  if (!queue.place.with_data.linked()) return;
  queue.place.with_data.unlink();
  --with_data_;
}

void Worker::has_work(TurnClient& client) {
  if (!client.linked()) busy_.push_back(client);
}

/// Costs nothing until it has work again.
void Worker::let_rest(TurnClient& client) {
  client.unlink();
  if (client.queues > 0) return;
  client.share->wire.on_wait(nullptr);
  base::subtract_shared(client_count_, 1);
  std::erase_if(clients_, [&client](const auto& each) { return each.get() == &client; });
}

// --- a turn

bool Worker::poll() {
  turns_.begin(reactor_.now_ns(), sessions_.load(std::memory_order_relaxed));
  if (std::exchange(several_, turns_.several()) != turns_.several()) bound_budgets();
  // What data goes at once is who comes first's: each is the first in its turn.
  if (TurnClient* const first = busy_.pop_front(); first != nullptr) busy_.push_back(*first);
  dozers_due_ = are_dozers_due();
  size_t did = 0;
  // Others may join the list meanwhile, but only the present one leaves it.
  for (TurnClient* client = busy_.front(); client != nullptr;) {
    TurnClient* const next = busy_.next(*client);
    if (client->only_dozes() && !polls_dozers(*client)) {
      client = next;
      continue;
    }
    (void)turns_.left(*client->share);  // gives it its part
    if (client->waits_for_budget) did += resume_streams(*client);
    did += poll_its_part(*client);
    if (!client->busy()) let_rest(*client);
    client = next;
  }
  if (turns_.rest() > 0) did += use_rest();
  if (with_data_ > 0) did += do_part();
  return did > 0;
}

size_t Worker::poll_its_part(TurnClient& client) {
  // Who is closing is soon drained, and asks for nothing any more.
  size_t did = poll_queues(client.closing, SIZE_MAX, [] { return SIZE_MAX; });
  const auto poll = [&](base::IntrusiveList<Queue>& queues) {
    return poll_queues(queues, looks_max(), [&] { return turns_.left(*client.share); });
  };
  if (!polls_dozers(client)) return did + poll(client.awake);
  const bool awake_first = client.next_is_awake(turns_.left(*client.share) > 0);
  did += poll(awake_first ? client.awake : client.dozing);
  return did + poll(awake_first ? client.dozing : client.awake);
}

/// As seldom as a reactor's pollers that wait for a fence.
bool Worker::are_dozers_due() {
  const uint64_t now_ns = reactor_.now_ns();
  if (!before_sleep_ && now_ns - dozers_ns_ < base::Reactor::kSeldomNs) return false;
  dozers_ns_ = now_ns;
  return true;
}

/// Also those whose fence has come: they fall asleep now.
bool Worker::polls_dozers(TurnClient& client) const {
  return !client.dozing.empty() && (dozers_due_ || !client.dozing.front()->dozes());
}

size_t Worker::looks_max() const {
  return turns_.several() && !before_sleep_ ? kLooksMax : SIZE_MAX;
}

/// Who was alone had no bound, and may be asleep.
void Worker::bound_budgets() {
  for (auto& client : clients_) {
    vhca::WireBudget& wire = client->share->wire;
    if (!wire.bounded()) wire.give(Turns::kWireBytesMin);
  }
}

size_t Worker::resume_streams(TurnClient& client) {
  const size_t did = client.share->wire.resume();
  client.waits_for_budget = client.share->wire.waits();
  return did;
}

/// Each of them once, who has waited longest first, until nothing is left for their client.
template <typename Left>
size_t Worker::poll_queues(base::IntrusiveList<Queue>& queues, size_t looks, Left left) {
  const uint64_t round = ++rounds_;
  size_t did = 0;
  while (looks > 0) {
    Queue* const queue = queues.front();
    if (queue == nullptr || queue->place.round == round) break;
    const size_t most = left();
    if (most == 0) break;
    queue->place.round = round;
    queue->base::ListNode::unlink();
    queues.push_back(*queue);
    base::add_shared(polls_, 1);
    polled_ = queue;
    const size_t took = queue->poll(most);
    did += took;
    if (took == 0) --looks;
    // Once it has left another thread may destroy it.
    if (std::exchange(polled_, nullptr) == nullptr) continue;
    if (took == 0) {
      found_nothing(*queue);
    } else if (!queue->closing()) {
      turns_.took(*queue->place.client->share, took);  // whose it is may have been proved now
    }
  }
  return did;
}

/// What waking and falling asleep cost is on the client's account.
void Worker::found_nothing(Queue& queue) {
  TurnClient& client = *queue.place.client;
  if (client.share->wire.used_up()) return;
  const bool sleeps = queue.falls_asleep();
  if (!sleeps && (!queue.dozes() || queue.closing())) return;
  queue.base::ListNode::unlink();
  (sleeps ? client.asleep : client.dozing).push_back(queue);
  if (sleeps && !before_sleep_) turns_.took(*client.share, 1);
}

/// What some have left of the turn is for those that want more than their part.
size_t Worker::use_rest() {
  size_t did = 0;
  for (TurnClient* client = busy_.front(); client != nullptr; client = busy_.next(*client)) {
    if (client->only_dozes()) continue;
    if (turns_.left(*client->share) > 0 || client->share->owes) continue;
    did += poll_queues(client->awake, looks_max(), [&] { return turns_.rest(); });
    if (turns_.rest() > 0) continue;
    client->unlink();
    busy_.push_back(*client);
    break;
  }
  return did;
}

/// The first that can go on; some that cannot are looked at, and stand behind it.
Queue* Worker::next_with_part(TurnClient& client) {
  for (size_t looks = 0; looks < kLooksMax; ++looks) {
    QueuePlace::WithData* const first = client.with_data.front();
    if (first == nullptr) return nullptr;
    if (first->queue.has_part()) return &first->queue;
    first->unlink();
    client.with_data.push_back(*first);
  }
  return nullptr;
}

/// One part of what is long in each turn, of the client that has waited longest.
size_t Worker::do_part() {
  Queue* chosen = nullptr;
  for (TurnClient* client = busy_.front(); client != nullptr; client = busy_.next(*client)) {
    const auto turn_of = [](const TurnClient& of) { return of.share->part_turn; };
    if (client->share->owes) continue;
    if (chosen != nullptr && turn_of(*chosen->place.client) <= turn_of(*client)) continue;
    if (Queue* const its = next_with_part(*client); its != nullptr) chosen = its;
  }
  if (chosen == nullptr) return 0;
  TurnClient& client = *chosen->place.client;
  client.share->part_turn = turns_.turn();
  chosen->place.with_data.unlink();
  client.with_data.push_back(chosen->place.with_data);
  chosen->do_part();
  return 1;
}

// --- sleep

void Worker::begin_arm() {
  if (reactor_.host().mutant("wakeup-lost") || waits_for_budget()) return;
  for (TurnClient* client = busy_.front(); client != nullptr; client = busy_.next(*client)) {
    for (auto* const queues : {&client->awake, &client->closing}) {
      for (Queue* queue = queues->front(); queue != nullptr; queue = queues->next(*queue))
        queue->arm();
    }
  }
}

bool Worker::arm() {
  if (reactor_.host().mutant("wakeup-lost")) return true;
  if (waits_for_budget()) return false;  // it is given in turns
  begin_arm();                           // who has done something since is not armed any more
  reactor_.fence();
  before_sleep_ = true;
  const bool did = poll();
  before_sleep_ = false;
  return !did && may_sleep();
}

bool Worker::waits_for_budget() {
  for (TurnClient* client = busy_.front(); client != nullptr; client = busy_.next(*client)) {
    if (client->waits_for_budget) return true;
  }
  return false;
}

/// Data may wait for a send slot: with that its connection wakes.
bool Worker::may_sleep() {
  for (TurnClient* client = busy_.front(); client != nullptr; client = busy_.next(*client)) {
    if (!client->all_asleep()) return false;
    for (auto* each = client->with_data.front(); each != nullptr;
         each = client->with_data.next(*each)) {
      if (each->queue.has_part()) return false;
    }
  }
  return true;
}

}  // namespace braid::trs::server
