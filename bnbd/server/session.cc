#include "bnbd/server/session.h"

#include <algorithm>
#include <utility>

namespace braid::bnbd::server {

namespace {

// Admin requests come beside the chunks of the queue depth.
constexpr uint32_t kSpareSlots = 8;
// Of a client that does not ask, the oldest are forgotten: it finds out by its next request.
constexpr size_t kClosedMax = 1024;

bool id_less(const std::unique_ptr<SessionDevice>& device, uint32_t id) {
  return device->id < id;
}

}  // namespace

/// More places than before keep apart whoever was apart.
void DeviceIds::make_room(size_t devices) {
  if (2 * (devices + 1) <= places_.size()) return;
  const std::vector<SessionDevice*> before = std::exchange(places_, {});
  places_.resize(2 * before.size());
  for (SessionDevice* const device : before) {
    if (device != nullptr) put(*device);
  }
}

Session::Session(ServerImpl& server, trs::ServerSession& transport,
                 const std::vector<base::Reactor*>& reactors, std::shared_ptr<DoorPlace> place)
    : opened_ns(reactors.front()->now_ns()),
      transport_(transport),
      name_(transport.name()),
      peer_(transport.peer_text()),
      braid_peer_(transport.braid_peer()),
      key_name_(transport.key_name()),
      client_(transport.client()),
      door_(std::move(place)),
      openings_(*reactors.front()) {
  for (base::Reactor* reactor : reactors) {
    pools_.push_back(std::make_unique<SlotPool>(server, *this, *reactor, pools_.size(),
                                                transport.queue_depth() + kSpareSlots));
  }
}

void Session::tell_devices_seen(const trs::ServerRequest& chunk) {
  expects_seen_ = false;
  for (auto& device : devices_) {
    device->told.used_again(&chunk);
    expects_seen_ = expects_seen_ || device->told.waits();
  }
}

void Session::tell_resized(SessionDevice& device) {
  device.news = ++news_;
  transport_.raise_notice();
}

void Session::tell_closed(uint32_t id) {
  if (!braid_peer_) return;  // asks for no news: it finds out by its next request
  if (closed_.size() >= kClosedMax) closed_.erase(closed_.begin());
  closed_.push_back({++news_, id});
  transport_.raise_notice();
}

wire::NewsList Session::news_since(uint64_t seen) {
  std::erase_if(closed_, [&](const ClosedDevice& closed) { return closed.news <= seen; });
  std::vector<std::pair<uint64_t, wire::DeviceNews>> all;
  for (const ClosedDevice& closed : closed_) {
    all.push_back({closed.news, {closed.id, wire::NewsKind::kClosed, 0}});
  }
  for (const auto& device : devices_) {
    if (device->news <= seen) continue;
    const uint64_t size_bytes = device->exported.device->info().size_bytes;
    all.push_back({device->news, {device->id, wire::NewsKind::kResized, size_bytes}});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (all.size() > wire::kNewsItemsMax) all.resize(wire::kNewsItemsMax);
  wire::NewsList news{all.empty() ? seen : all.back().first, {}};
  for (const auto& [at, item] : all) news.items.push_back(item);
  return news;
}

SessionDevice* Session::find(const Export& exported) {
  for (auto& device : devices_) {
    if (&device->exported == &exported) return device.get();
  }
  return nullptr;
}

SessionDevice& Session::add(Export& exported, wire::AccessMode mode, base::Reactor& home) {
  auto device = std::make_unique<SessionDevice>(*this, exported, home);
  device->mode = mode;
  device->opened_ns = home.now_ns();
  ids_.make_room(devices_.size());
  // Random, so that a late request for a closed device does not meet another one. 0 is no id.
  do {
    home.host().random(std::as_writable_bytes(std::span(&device->id, 1)));
  } while (device->id == 0 || device->id == wire::kNoDevice || !ids_.takes(device->id));
  SessionDevice& added = *device;
  ids_.put(added);
  const auto place = std::lower_bound(devices_.begin(), devices_.end(), added.id, id_less);
  devices_.insert(place, std::move(device));
  exported.holders.push_back(&added);
  return added;
}

std::unique_ptr<SessionDevice> Session::remove(SessionDevice& device) {
  const auto found = std::lower_bound(devices_.begin(), devices_.end(), device.id, id_less);
  BRAID_ASSERT(found != devices_.end() && found->get() == &device);
  auto removed = std::move(*found);
  devices_.erase(found);
  ids_.remove(*removed);
  return removed;
}

std::unique_ptr<SessionDevice> Session::take_retired(SessionDevice& device) {
  const auto found = std::find_if(retired_.begin(), retired_.end(),
                                  [&](const auto& each) { return each.get() == &device; });
  BRAID_ASSERT(found != retired_.end());
  auto taken = std::move(*found);
  retired_.erase(found);
  return taken;
}

}  // namespace braid::bnbd::server
