#include "vhca/ibv/cm_channel.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "vhca/ibv/words.h"

namespace braid::vhca::ibv {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

CmEvent copy_of(const rdma_cm_event& raw) {
  CmEvent event;
  event.type = raw.event;
  event.status = raw.status;
  const rdma_conn_param& conn = raw.param.conn;
  if (conn.private_data != nullptr) {
    const auto* const data = static_cast<const std::byte*>(conn.private_data);
    event.private_data.assign(data, data + conn.private_data_len);
  }
  event.responder_resources = conn.responder_resources;
  event.initiator_depth = conn.initiator_depth;
  if (raw.event == RDMA_CM_EVENT_CONNECT_REQUEST) event.request = raw.id;
  return event;
}

}  // namespace

Result<std::unique_ptr<CmChannel>> CmChannel::create(std::shared_ptr<const Library> library) {
  rdma_event_channel* const raw = library->cm.create_event_channel();
  if (raw == nullptr) {
    if (errno == ENODEV || errno == ENOENT || errno == ENOSYS) {
      return no_rdma_error(errno, "opening the RDMA connection manager");
    }
    return verbs_error(errno, "opening the RDMA connection manager");
  }
  std::unique_ptr<CmChannel> channel(new CmChannel(std::move(library), raw));
  BRAID_CHECK(set_non_blocking(raw->fd));
  return channel;
}

CmChannel::~CmChannel() {
  if (reactor_ != nullptr) reactor_->io().unwatch(watch_);
  // A request that nobody looked at: destroying its id rejects it.
  while (fetch()) {
  }
  for (const CmEvent& event : events_) {
    if (event.request != nullptr) (void)library_->cm.destroy_id(event.request);
  }
  for (rdma_cm_id* const id : ids_) (void)library_->cm.destroy_id(id);
  library_->cm.destroy_event_channel(channel_);
}

Status CmChannel::make_id() {
  rdma_cm_id* id = nullptr;
  if (library_->cm.create_id(channel_, &id, this, RDMA_PS_TCP) != 0) {
    return verbs_error(errno, "creating an RDMA connection id");
  }
  ids_.push_back(id);
  return base::ok_status();
}

Status CmChannel::adopt(rdma_cm_id* id) {
  if (library_->cm.migrate_id(id, channel_) != 0) {
    return verbs_error(errno, "moving an RDMA connection id");
  }
  ids_.push_back(id);
  return base::ok_status();
}

void CmChannel::destroy_last_id() {
  (void)library_->cm.destroy_id(ids_.back());
  ids_.pop_back();
}

void CmChannel::start(base::Reactor& reactor) {
  reactor_ = &reactor;
  arrived_.emplace(reactor);
  watch_.ready = &CmChannel::readable;
  watch_.context = this;
  reactor.io().watch_readable(handle_, watch_);
}

void CmChannel::readable(base::Watch& watch) {
  static_cast<CmChannel*>(watch.context)->take_all();
}

void CmChannel::take_all() {
  const std::weak_ptr<char> alive = alive_;
  for (bool more = true; more && !alive.expired();) {
    more = fetch();
    deliver();
  }
}

/// Takes what the kernel has, up to a connect request: who takes that moves the new id to a channel
/// of its own, and with it what the kernel has for it still. True: there may be more.
bool CmChannel::fetch() {
  rdma_cm_event* raw = nullptr;
  while (library_->cm.get_cm_event(channel_, &raw) == 0) {
    events_.push_back(copy_of(*raw));
    (void)library_->cm.ack_cm_event(raw);
    if (events_.back().request != nullptr) return true;
  }
  return false;
}

void CmChannel::deliver() {
  if (!sink_) {
    if (arrived_ && !events_.empty()) arrived_->notify_all();
    return;
  }
  const std::weak_ptr<char> alive = alive_;
  while (!alive.expired() && !events_.empty()) {
    CmEvent event = std::move(events_.front());
    events_.pop_front();
    // A copy: who is called may destroy this, or set another sink.
    const std::function<void(CmEvent)> sink = sink_;
    sink(std::move(event));
  }
}

base::Task<CmEvent> CmChannel::next() {
  while (events_.empty()) co_await arrived_->wait();
  CmEvent event = std::move(events_.front());
  events_.pop_front();
  co_return event;
}

void CmChannel::on_event(std::function<void(CmEvent)> sink) {
  sink_ = std::move(sink);
  deliver();
}

std::optional<CmEvent> CmChannel::try_next() {
  (void)fetch();
  if (events_.empty()) return std::nullopt;
  CmEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

// --- addresses

bool SocketAddress::is_wildcard() const {
  if (storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr == INADDR_ANY;
  }
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&ip);
}

Result<SocketAddress> socket_address(const Address& address) {
  SocketAddress made;
  auto& v4 = reinterpret_cast<sockaddr_in&>(made.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(made.storage);
  if (::inet_pton(AF_INET, address.ip.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    return made;
  }
  made = {};
  if (::inet_pton(AF_INET6, address.ip.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    return made;
  }
  return make_error(Errc::kInvalid,
                    "\"{}\" is not an IP address; right would be, for example, 10.0.0.1 or fd00::1",
                    address.ip);
}

Address address_of(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return {text.data(), ntohs(v4.sin_port)};
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return {text.data(), ntohs(v6.sin6_port)};
}

std::string text_of(const Address& address) {
  const bool v6 = address.ip.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.ip, address.port)
            : fmt::format("{}:{}", address.ip, address.port);
}

}  // namespace braid::vhca::ibv
