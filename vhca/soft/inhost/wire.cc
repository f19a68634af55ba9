#include "vhca/soft/inhost/wire.h"

#include <algorithm>

#include "base/log.h"
#include "vhca/connect_bounds.h"
#include "vhca/soft/inhost/access.h"
#include "vhca/soft/inhost/connection.h"
#include "vhca/soft/inhost/listener.h"
#include "vhca/soft/inhost/rendezvous.h"
#include "vhca/soft/inhost/word_claim.h"
#include "vhca/soft/qp.h"

namespace braid::vhca::soft::inhost {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;

namespace {
constexpr uint64_t kBacklogRetryNs = base::kMillisecond;
}  // namespace

InHostWire::InHostWire(base::Host& host, const Options& options, std::shared_ptr<Port> port)
    : host_(host),
      options_(options),
      port_(port != nullptr ? std::move(port) : std::make_shared<Port>(/*can_repeat=*/false)),
      qp_numbers_(host),
      exports_(host),
      peers_(host) {
  host_.random(std::as_writable_bytes(std::span(id_)));
}

Result<PortAttr> InHostWire::query_port(uint8_t port) const {
  if (port != 1) return make_error(Errc::kNotFound, "port {}; this device has port 1", port);
  PortAttr attr{};
  attr.state = port_->up() ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = IBV_MTU_4096;
  attr.gid_tbl_len = 1;
  attr.pkey_tbl_len = 1;
  attr.max_msg_sz = 1U << 31;
  attr.phys_state = port_->up() ? 5 : 3;  // LinkUp, Disabled
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  return attr;
}

Result<Gid> InHostWire::query_gid(uint8_t port, int index) const {
  if (port != 1 || index != 0) {
    return make_error(Errc::kNotFound, "GID {} of port {}; this device has GID 0 of port 1", index,
                      port);
  }
  // ::ffff:127.0.0.1
  return Gid{.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};
}

std::span<MrEntry> InHostWire::mr_table_memory(uint32_t capacity) {
  auto segment = host_.create_published_segment(capacity * sizeof(MrEntry), "mr-table");
  if (!segment.ok()) {
    host_.log().error("no table of memory registrations, so no peer can connect: {}",
                      segment.error().message());
    return {};
  }
  mr_table_ = std::move(segment).value();
  mr_capacity_ = capacity;
  return {reinterpret_cast<MrEntry*>(mr_table_->data()), capacity};
}

std::unique_ptr<PeerFence> InHostWire::fence_peers(uint32_t key) {
  return fence_copies(copies_, key, [this] { host_.heavy_fence(); });
}

/// In segments peers use the processor's atomics as we do. Elsewhere they read and write: who is
/// not alone claims the word as they do (link_atomic.cc).
Wire::WordChange InHostWire::change_word(const Request& request, const MrView& mr,
                                         uint64_t& before) {
  if (mr.place.segment != kForeignMemory) return Wire::change_word(request, mr, before);
  const auto change = [&] { (void)Wire::change_word(request, mr, before); };
  if (copies_.while_nobody_copies(change)) return WordChange::kDone;
  const WordClaim claim =
      claim_word(host_, *mr_table_handle(), request.remote_address, claims_wait_);
  if (claim.claimed) return WordChange::kBusy;
  if (claim.lock == nullptr) return WordChange::kFailed;
  change();
  return WordChange::kDone;
}

Status InHostWire::check_peer(const base::PeerIdentity& identity) const {
  if (mr_table_ == nullptr) {
    return make_error(Errc::kNoMemory, "this device has no table of memory registrations");
  }
  if (identity.uid == host_.user_id()) return {};
  return make_error(Errc::kPermission,
                    "process {} belongs to user {}, this one to user {}; in shared memory only "
                    "processes of one user are connected, others by TCP (--wire tcp)",
                    identity.pid, identity.uid, host_.user_id());
}

Result<std::unique_ptr<Listener>> InHostWire::listen(SoftDevice& device, base::Reactor& reactor,
                                                     const Address& address, int backlog) {
  return listen(device, reactor, address, backlog, std::make_shared<RequestQueue>(reactor));
}

Result<std::unique_ptr<Listener>> InHostWire::listen(SoftDevice& device, base::Reactor& reactor,
                                                     const Address& address, int backlog,
                                                     std::shared_ptr<RequestQueue> requests) {
  BRAID_TRY(BoundListener bound, bind_listener(host_, address));
  return std::unique_ptr<Listener>(std::make_unique<InHostListener>(
      *this, device, reactor, std::move(bound), backlog, std::move(requests)));
}

/// A socket to whoever listens at the address. A full backlog is waited for.
Task<Result<std::unique_ptr<base::LocalSocket>>> InHostWire::dial(base::Reactor& reactor,
                                                                  Address peer,
                                                                  uint64_t deadline_ns) {
  BRAID_CO_TRY(const std::vector<std::string> names, listener_names(host_, peer));
  for (;;) {
    bool busy = false;
    for (const std::string& name : names) {
      auto socket = host_.connect_local(name);
      if (socket.ok()) {
        BRAID_CO_CHECK(check_peer(socket.value()->peer()));
        co_return std::move(socket).value();
      }
      if (socket.code() == Errc::kWouldBlock) {
        busy = true;
        break;
      }
      if (socket.code() != Errc::kRefused) co_return socket.error();
    }
    if (!busy) {
      co_return make_error(Errc::kRefused, "nobody listens at {} port {}", peer.ip, peer.port);
    }
    if (host_.now_ns() >= deadline_ns) {
      co_return make_error(Errc::kTimedOut, "the listener at {} port {} takes no connections",
                           peer.ip, peer.port);
    }
    co_await reactor.sleep_ns(kBacklogRetryNs);
  }
}

namespace {

/// What a refusal is for the caller: the program's own is a result, others are errors.
Result<ConnectResult> rejected(Received& received, const Address& peer) {
  const CmMessage& message = received.message;
  if (message.reason == CmRejectReason::kUser) {
    ConnectResult result;
    result.reject_private_data = message.private_data;
    return result;
  }
  const bool overload = message.reason == CmRejectReason::kOverload;
  return make_error(
      Errc::kRefused, "the listener at {} port {} {}", peer.ip, peer.port,
      overload ? "has a full backlog" : "found the request invalid; its log says why");
}

}  // namespace

Task<Result<ConnectResult>> InHostWire::connect(SoftDevice& device, base::Reactor& reactor,
                                                SoftQp& qp, Address peer,
                                                ConnectParameters parameters, uint64_t timeout_ns) {
  const uint64_t now_ns = host_.now_ns();
  const uint64_t deadline_ns = now_ns + std::min(timeout_ns, base::kNever - now_ns);
  BRAID_CO_CHECK(check_parameters(parameters, kRequestPrivateMax));
  BRAID_CO_TRY(LinkEnd* const end, link_end_of(device, qp));
  Task<bool> passing = pass_port(reactor, port_.get());
  const std::optional<bool> passed = co_await reactor.with_timeout(std::move(passing), timeout_ns);
  if (!passed.has_value()) {
    co_return make_error(Errc::kTimedOut, "no answer from {} port {}", peer.ip, peer.port);
  }
  BRAID_CO_TRY(auto socket, co_await dial(reactor, peer, deadline_ns));
  BRAID_CO_TRY(auto pending, PendingEnd::create(*this, *end, parameters));

  ChannelOwner channel(*this, reactor, std::move(socket));
  BRAID_CO_CHECK(pending->send(*channel, CmKind::kRequest));
  const uint64_t sent_ns = host_.now_ns();
  const uint64_t left_ns = deadline_ns > sent_ns ? deadline_ns - sent_ns : 0;
  Task<Result<Received>> handshake = channel->handshake_message();
  Task<std::optional<Result<Received>>> limited =
      reactor.with_timeout(std::move(handshake), left_ns);
  std::optional<Result<Received>> answer = co_await std::move(limited);
  if (!answer.has_value()) {
    co_return make_error(Errc::kTimedOut, "{} at {} port {} did not answer within {} ms",
                         peer_text_of(channel->identity()), peer.ip, peer.port,
                         timeout_ns / base::kMillisecond);
  }
  BRAID_CO_TRY(Received received, std::move(*answer));
  if (received.message.kind == CmKind::kReject) co_return rejected(received, peer);

  Status done = base::ok_status();
  if (received.message.kind != CmKind::kReply) {
    done = make_error(Errc::kProtocol, "the peer answered a connect request with a request");
  }
  if (done.ok()) {
    done = co_await pending->establish(reactor, channel.shared(), received, deadline_ns);
  }
  if (done.ok()) {
    const CmMessage ready{.kind = CmKind::kReady};
    std::function<Status()> send = [&] { return channel->send(ready); };
    done = co_await send_when_read(reactor, *channel, deadline_ns, std::move(send));
  }
  if (!done.ok()) {
    channel->disconnect_user();
    co_return done.error().with("connecting to {} port {}", peer.ip, peer.port);
  }
  ConnectResult result;
  result.connection = std::make_unique<InHostConnection>(std::move(channel),
                                                         std::move(received.message.private_data));
  co_return result;
}

}  // namespace braid::vhca::soft::inhost
