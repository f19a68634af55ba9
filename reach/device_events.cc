#include "reach/device_events.h"

#include <string_view>

namespace braid::reach {

namespace {

using base::LogLevel;

struct Words {
  LogLevel level;
  std::string_view text;
};

/// What a peer makes happen as often as it likes, IBV_EVENT_QP_FATAL too, is left to TRS, which
/// tells of the connection that failed, in bounds.
Words words_for(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_DEVICE_FATAL:
      return {LogLevel::kError, "it has failed, and all that goes by it with it"};
    case IBV_EVENT_PORT_ERR:
      return {LogLevel::kWarning, "its link is down: what goes by it waits, or takes other paths"};
    case IBV_EVENT_PORT_ACTIVE:
      return {LogLevel::kInfo, "its link is up"};
    case IBV_EVENT_CQ_ERR:
      return {LogLevel::kError, "a completion queue was overrun: its connections fail"};
    case IBV_EVENT_SRQ_ERR:
      return {LogLevel::kError, "a queue of shared receives has failed"};
    case IBV_EVENT_GID_CHANGE:
      return {LogLevel::kInfo, "its addresses have changed"};
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
      return {LogLevel::kInfo, "its fabric was managed anew"};
    default:
      return {LogLevel::kDebug, "a connection's own event"};
  }
}

}  // namespace

DeviceEvents::DeviceEvents(base::Reactor& reactor, vhca::Device& device, LinkDown link_down)
    : reactor_(reactor),
      device_(device),
      link_down_(std::move(link_down)),
      log_(reactor.log().child("hca")) {
  watch_.ready = &DeviceEvents::ready;
  watch_.context = this;
  reactor_.io().watch(device_.async_event(), watch_);
  ready(watch_);  // of before
}

DeviceEvents::~DeviceEvents() {
  reactor_.io().unwatch(watch_);
}

void DeviceEvents::ready(base::Watch& watch) {
  auto& self = *static_cast<DeviceEvents*>(watch.context);
  while (const auto event = self.device_.next_async_event()) self.tell(*event);
}

void DeviceEvents::tell(const vhca::AsyncEvent& event) {
  const Words words = words_for(event.type);
  if (event.port == 0) {
    log_.log(words.level, "device {}: {}", device_.info().name, words.text);
  } else {
    log_.log(words.level, "device {} port {}: {}", device_.info().name, event.port, words.text);
  }
  if (event.type == IBV_EVENT_PORT_ERR && link_down_) link_down_(device_, event.port);
}

}  // namespace braid::reach
