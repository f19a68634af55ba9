// The active side: finding the way to a peer, and asking it.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "vhca/connect_bounds.h"
#include "vhca/ibv/connection.h"
#include "vhca/ibv/words.h"

namespace braid::vhca::ibv {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;

namespace {

// Of each step of finding the way; the caller's limit is over all.
constexpr int kResolveMs = 2000;

std::span<const uint8_t> ip_bytes(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return {reinterpret_cast<const uint8_t*>(&v4.sin_addr), sizeof v4.sin_addr};
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  return {v6.sin6_addr.s6_addr, sizeof v6.sin6_addr.s6_addr};
}

/// How many bits two addresses have in common from the front.
int common_prefix(const SocketAddress& a, const SocketAddress& b) {
  const auto bytes_a = ip_bytes(a);
  const auto bytes_b = ip_bytes(b);
  int bits = 0;
  for (size_t i = 0; i < bytes_a.size(); ++i) {
    const auto differ = static_cast<uint8_t>(bytes_a[i] ^ bytes_b[i]);
    bits += std::countl_zero(differ);
    if (differ != 0) break;
  }
  return bits;
}

std::vector<std::string> own_addresses(const IbvDevice& device) {
  if (!device.source_ip().empty()) return {device.source_ip()};
  return device.addresses();
}

/// The addresses to connect from, of the peer's family, those nearest to the peer first. Several,
/// as only the kernel knows which of them has a route.
std::vector<SocketAddress> sources_for(const IbvDevice& device, const SocketAddress& peer) {
  std::vector<SocketAddress> sources;
  for (const std::string& ip : own_addresses(device)) {
    auto address = socket_address({ip, 0});
    if (address.ok() && address->storage.ss_family == peer.storage.ss_family) {
      sources.push_back(*address);
    }
  }
  std::stable_sort(sources.begin(), sources.end(), [&](const auto& a, const auto& b) {
    return common_prefix(a, peer) > common_prefix(b, peer);
  });
  return sources;
}

using Found = Result<std::unique_ptr<CmChannel>>;

/// An id that has a route to the peer through the device, from `source` (null: any).
Task<Found> try_way(IbvDevice& device, base::Reactor& reactor, SocketAddress* source,
                    SocketAddress peer, std::string peer_text) {
  const Library& library = device.library();
  BRAID_CO_TRY(std::unique_ptr<CmChannel> channel, CmChannel::create(device.shared_library()));
  BRAID_CO_CHECK(channel->make_id());
  channel->start(reactor);
  sockaddr* const from = source != nullptr ? source->get() : nullptr;
  if (library.cm.resolve_addr(channel->id(), from, peer.get(), kResolveMs) != 0) {
    co_return verbs_error(errno, fmt::format("finding the way to {}", peer_text));
  }
  CmEvent event = co_await channel->next();
  if (event.type != RDMA_CM_EVENT_ADDR_RESOLVED) {
    co_return connect_error(event.type, event.status, peer_text);
  }
  const char* const through = channel->id()->verbs->device->name;
  if (device.info().name != through) {
    co_return make_error(Errc::kNotFound, "the way to {} is through {}, not {}", peer_text, through,
                         device.info().name);
  }
  if (library.cm.resolve_route(channel->id(), kResolveMs) != 0) {
    co_return verbs_error(errno, fmt::format("finding a route to {}", peer_text));
  }
  event = co_await channel->next();
  if (event.type != RDMA_CM_EVENT_ROUTE_RESOLVED) {
    co_return connect_error(event.type, event.status, peer_text);
  }
  co_return channel;
}

Task<Found> find_way(IbvDevice& device, base::Reactor& reactor, SocketAddress peer,
                     std::string peer_text) {
  std::vector<SocketAddress> sources = sources_for(device, peer);
  if (sources.empty()) {
    if (!device.source_ip().empty()) {
      co_return make_error(Errc::kInvalid, "{} is not of the address family of {}",
                           device.source_ip(), peer_text);
    }
    if (!device.addresses().empty()) {
      co_return make_error(Errc::kNotFound, "{} has no address of the family of {}",
                           device.info().name, peer_text);
    }
    co_return co_await try_way(device, reactor, nullptr, peer, peer_text);
  }
  std::optional<Error> why;
  for (SocketAddress& source : sources) {
    Found found = co_await try_way(device, reactor, &source, peer, peer_text);
    if (found.ok()) co_return found;
    if (!why) why = found.error();
  }
  co_return why->with("connecting through {}", device.info().name);
}

using Connected = Result<ConnectResult>;

Connected answered(IbvDevice& device, IbvQp& qp, const ConnectParameters& parameters,
                   const rdma_conn_param& asked, std::unique_ptr<CmChannel> channel,
                   CmEvent event) {
  rdma_cm_id& id = *channel->id();
  BRAID_CHECK(bring_up(qp, id, parameters,
                       std::min(asked.responder_resources, event.responder_resources),
                       std::min(asked.initiator_depth, event.initiator_depth)));
  if (device.library().cm.establish(&id) != 0) {
    const int err = errno;
    QpAttr attr{};
    attr.qp_state = IBV_QPS_RESET;
    (void)qp.modify(attr, IBV_QP_STATE);
    return verbs_error(err, "confirming a connection");
  }
  std::string peer = peer_text_of(id, device);
  ConnectResult result;
  result.connection =
      std::make_unique<IbvConnection>(device.library(), std::move(channel), qp.new_hold(),
                                      std::move(event.private_data), std::move(peer));
  return result;
}

Task<Connected> connect_to(IbvDevice& device, base::Reactor& reactor, IbvQp& qp, SocketAddress peer,
                           std::string peer_text, ConnectParameters parameters) {
  BRAID_CO_TRY(std::unique_ptr<CmChannel> channel,
               co_await find_way(device, reactor, peer, peer_text));
  rdma_conn_param param = conn_param_of(parameters, qp);
  if (device.library().cm.connect(channel->id(), &param) != 0) {
    co_return verbs_error(errno, fmt::format("connecting to {}", peer_text));
  }
  CmEvent event = co_await channel->next();
  if (event.type == RDMA_CM_EVENT_CONNECT_RESPONSE) {
    co_return answered(device, qp, parameters, param, std::move(channel), std::move(event));
  }
  if (rejected_by_program(event.type, event.status)) {
    ConnectResult result;
    result.reject_private_data = std::move(event.private_data);
    co_return result;
  }
  co_return connect_error(event.type, event.status, peer_text);
}

}  // namespace

Task<Result<ConnectResult>> IbvDevice::connect(base::Reactor& reactor, Qp& qp, Address peer,
                                               ConnectParameters parameters, uint64_t timeout_ns) {
  BRAID_CO_CHECK(check_parameters(parameters, kConnectPrivateMax));
  BRAID_CO_TRY(IbvQp* const ours, connectable(*this, qp));
  BRAID_CO_TRY(const SocketAddress to, socket_address(peer));
  const std::string peer_text = text_of(peer);
  if (peer.port == 0) co_return make_error(Errc::kInvalid, "port 0 of {}; 1 to 65535", peer.ip);
  Task<Connected> task = connect_to(*this, reactor, *ours, to, peer_text, parameters);
  Task<std::optional<Connected>> limited = reactor.with_timeout(std::move(task), timeout_ns);
  std::optional<Connected> outcome = co_await std::move(limited);
  if (outcome) co_return std::move(*outcome);
  co_return make_error(Errc::kTimedOut, "{} did not answer within {} ms, through {}", peer_text,
                       timeout_ns / base::kMillisecond, info_.name);
}

}  // namespace braid::vhca::ibv
