#include "vhca/soft/inhost/connection.h"

#include <array>

#include "base/pages.h"
#include "vhca/soft/qp.h"

namespace braid::vhca::soft::inhost {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;

/// Receives in the segment of a QP with an SRQ, which are posted one by one.
constexpr uint32_t kSharedReceives = 64;
/// A longer segment, for thousands of receives, gets its pages as it is used: a reactor is not to
/// be held up for milliseconds.
constexpr size_t kFilledMaxBytes = size_t{1} << 20;
/// How long a peer that was told of much is left to read it.
constexpr uint64_t kReadingNs = 100'000;

// --- ChannelOwner

ChannelOwner::ChannelOwner(InHostWire& wire, base::Reactor& reactor,
                           std::unique_ptr<base::LocalSocket> socket)
    : wire_(wire), channel_(std::make_shared<Channel>(reactor, std::move(socket))) {
  channel_->start();
}

void ChannelOwner::shut_down() {
  if (!channel_) return;
  wire_.exports().leave(*channel_);
  channel_->shut_down();
}

// --- PendingEnd

Result<std::unique_ptr<PendingEnd>> PendingEnd::create(InHostWire& wire, LinkEnd& end,
                                                       const ConnectParameters& parameters) {
  std::unique_ptr<PendingEnd> pending(new PendingEnd(wire, end, parameters));
  const EndInfo& info = pending->info_;
  const uint32_t receives = info.shares_receives ? kSharedReceives : info.max_recv_wr;
  const uint32_t payload_bytes =
      Geometry::payload_for(info.longest_receive_bytes, wire.options().payload_bytes);
  pending->geometry_ = Geometry::for_receives(receives, payload_bytes, info.max_recv_sge);
  if (!pending->geometry_.valid()) {
    return make_error(Errc::kInvalid, "a QP with {} receives; at most {} fit the in-host wire",
                      info.max_recv_wr, Geometry::kReceivesMax);
  }
  BRAID_TRY(pending->segment_,
            wire.host().create_segment(pending->geometry_.total_bytes(), "inbound"));
  // Messages go round, and use all of it soon: none is to wait for memory, or for a page's fault.
  if (pending->segment_->size() <= kFilledMaxBytes) {
    BRAID_CHECK(base::populate({pending->segment_->data(), pending->segment_->size()}));
  }
  BRAID_TRY(pending->segment_handle_, pending->segment_->handle().duplicate());
  return pending;
}

Status PendingEnd::send(Channel& channel, CmKind kind) {
  CmMessage message;
  message.kind = kind;
  message.end = {.device = wire_.id(),
                 .qp_number = info_.number,
                 .geometry = geometry_,
                 .mr_capacity = wire_.mr_capacity(),
                 .has_event = info_.event != nullptr,
                 .has_send_event = send_event() != nullptr,
                 .shares_receives = info_.shares_receives,
                 .has_heavy_fence = wire_.host().has_heavy_fence(),
                 .retry_count = parameters_.retry_count,
                 .rnr_retry_count = parameters_.rnr_retry_count,
                 .ack_timeout = parameters_.ack_timeout,
                 .responder_resources = parameters_.responder_resources,
                 .initiator_depth = parameters_.initiator_depth};
  message.private_data.assign(parameters_.private_data.begin(), parameters_.private_data.end());
  std::vector<const base::Handle*> handles{wire_.mr_table_handle(), segment_handle_.get()};
  if (info_.event != nullptr) handles.push_back(&info_.event->handle());
  if (send_event() != nullptr) handles.push_back(&send_event()->handle());
  return channel.send(message, handles);
}

/// That of the send CQ, if it is not that of the receive CQ.
base::Event* PendingEnd::send_event() const {
  return info_.send_event != info_.event ? info_.send_event : nullptr;
}

Result<LinkParts> PendingEnd::make_parts(const std::shared_ptr<Channel>& channel, Received& peer) {
  base::Host& host = wire_.host();
  const CmEnd& peer_end = peer.message.end;
  LinkParts parts;
  BRAID_TRY(parts.peer,
            wire_.peers().find_or_open(channel->identity(), peer_end, std::move(peer.handles[0])));
  BRAID_TRY(parts.peer_segment,
            host.map_segment(std::move(peer.handles[1]), peer_end.geometry.total_bytes()));
  if (parts.peer_segment->size() <= kFilledMaxBytes) {
    base::map_pages({parts.peer_segment->data(), parts.peer_segment->size()});
  }
  size_t next = 2;
  if (peer_end.has_event) {
    BRAID_TRY(parts.peer_event, host.adopt_event(std::move(peer.handles[next++])));
  }
  if (peer_end.has_send_event) {
    BRAID_TRY(parts.peer_send_event, host.adopt_event(std::move(peer.handles[next++])));
  }
  parts.peer_qp_number = peer_end.qp_number;
  parts.own_shares_receives = info_.shares_receives;
  parts.peer_shares_receives = peer_end.shares_receives;
  parts.own_segment = std::move(segment_);
  parts.own_geometry = geometry_;
  parts.peer_geometry = peer_end.geometry;
  parts.port = &wire_.own_port();
  parts.retry_ns = retry_ns(parameters_);
  parts.channel = channel;
  parts.heavy_fence_exists = host.has_heavy_fence() && peer_end.has_heavy_fence;
  return parts;
}

Task<Status> PendingEnd::establish(base::Reactor& reactor, const std::shared_ptr<Channel>& channel,
                                   Received& peer, uint64_t deadline_ns) {
  BRAID_CO_TRY(LinkParts parts, make_parts(channel, peer));
  BRAID_CO_CHECK(channel->attach(parts.peer));
  // Before the peer can learn any key from us.
  Exports::Told told;
  std::function<Status()> join = [&] { return wire_.exports().join(channel, info_.pd, told); };
  BRAID_CO_CHECK(co_await send_when_read(reactor, *channel, deadline_ns, std::move(join)));
  auto link = std::make_unique<InHostLink>(wire_.host(), wire_.copies(), end_, std::move(parts));
  BRAID_CO_CHECK(end_.establish(std::move(link), peer.message.end.qp_number, parameters_));
  co_return end_.start_sending();
}

Task<Status> send_when_read(base::Reactor& reactor, const Channel& channel, uint64_t deadline_ns,
                            std::function<Status()> send) {
  for (;;) {
    const Status sent = send();
    if (sent.ok() || sent.error().code() != Errc::kWouldBlock) co_return sent;
    if (reactor.now_ns() >= deadline_ns) {
      co_return make_error(Errc::kTimedOut, "{} does not read what it is told of our memory",
                           peer_text_of(channel.identity()));
    }
    co_await reactor.sleep_ns(kReadingNs);
  }
}

// --- InHostConnection

InHostConnection::InHostConnection(ChannelOwner channel, std::vector<std::byte> peer_private_data)
    : channel_(std::move(channel)), private_data_(std::move(peer_private_data)) {}

void InHostConnection::disconnect() {
  if (std::exchange(disconnected_, true)) return;
  channel_->disconnect_user();
  channel_.shut_down();
}

void InHostConnection::on_disconnect(std::function<void()> callback) {
  channel_->on_end(std::move(callback));
}

std::string InHostConnection::peer_text() const {
  return peer_text_of(channel_->identity());
}

// --- small things

std::string peer_text_of(const base::PeerIdentity& identity) {
  return fmt::format("process {} on this host", identity.pid);
}

Result<LinkEnd*> link_end_of(SoftDevice& device, Qp& qp) {
  auto* const soft = dynamic_cast<SoftQp*>(&qp);
  if (soft == nullptr || &soft->device() != &device) {
    return make_error(Errc::kInvalid, "QP {} belongs to another device", qp.number());
  }
  return static_cast<LinkEnd*>(soft);
}

}  // namespace braid::vhca::soft::inhost
