// The passive side: listening, accepting, rejecting.
#include <algorithm>
#include <cerrno>

#include "base/limited_log.h"
#include "vhca/connect_bounds.h"
#include "vhca/ibv/connection.h"
#include "vhca/ibv/words.h"
#include "vhca/soft/request_queue.h"

namespace braid::vhca::ibv {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;

namespace {

// From our accept to the peer's confirmation.
constexpr uint64_t kHandshakeBoundNs = 5 * base::kSecond;
constexpr int kFreePortTries = 64;
// Of requests that are not taken.
constexpr base::LimitedLog::Limits kLines{.burst = 10, .per_second = 10};

class IbvRequest final : public ConnectRequest {
 public:
  /// `channel` holds the id of the request and is not started.
  IbvRequest(IbvDevice& device, std::unique_ptr<CmChannel> channel, CmEvent event)
      : device_(device),
        channel_(std::move(channel)),
        event_(std::move(event)),
        peer_text_(peer_text_of(*channel_->id(), device)) {}
  ~IbvRequest() override { reject({}); }

  std::span<const std::byte> private_data() const override { return event_.private_data; }
  std::string peer_text() const override { return peer_text_; }
  Task<Result<std::unique_ptr<Connection>>> accept(base::Reactor& reactor, Qp& qp,
                                                   ConnectParameters parameters) override;
  void reject(std::span<const std::byte> private_data) override;

 private:
  Status check_still_there(rdma_cm_id& id) const;
  Status answer(IbvQp& qp, const ConnectParameters& parameters);

  IbvDevice& device_;
  std::unique_ptr<CmChannel> channel_;  // null: decided
  CmEvent event_;
  const std::string peer_text_;
};

void IbvRequest::reject(std::span<const std::byte> private_data) {
  if (!channel_) return;
  const size_t count = std::min(private_data.size(), kRejectPrivateMax);
  (void)device_.library().cm.reject(channel_->id(), private_data.data(),
                                    static_cast<uint8_t>(count));
  channel_.reset();
}

/// Until a request is accepted the kernel keeps to itself what happens to it: a peer that gave up
/// shows by the CM not knowing the request any more.
Status IbvRequest::check_still_there(rdma_cm_id& id) const {
  QpAttr attr{};
  attr.qp_state = IBV_QPS_INIT;
  int mask = 0;
  if (device_.library().cm.init_qp_attr(&id, &attr, &mask) == 0 || errno != EINVAL) return {};
  return make_error(Errc::kDisconnected, "it gave up before it was accepted");
}

/// QP to RTS, then the reply: the peer may send as soon as it has that.
Status IbvRequest::answer(IbvQp& qp, const ConnectParameters& parameters) {
  rdma_cm_id& id = *channel_->id();
  BRAID_CHECK(check_still_there(id));
  rdma_conn_param param = conn_param_of(parameters, qp);
  param.responder_resources = std::min(param.responder_resources, event_.responder_resources);
  param.initiator_depth = std::min(param.initiator_depth, event_.initiator_depth);
  BRAID_CHECK(bring_up(qp, id, parameters, param.responder_resources, param.initiator_depth));
  if (device_.library().cm.accept(&id, &param) == 0) return base::ok_status();
  const int err = errno;
  BRAID_CHECK(check_still_there(id));
  return verbs_error(err, "answering a connect request");
}

Task<Result<std::unique_ptr<Connection>>> IbvRequest::accept(base::Reactor& reactor, Qp& qp,
                                                             ConnectParameters parameters) {
  if (!channel_) co_return make_error(Errc::kInvalid, "the connect request was decided already");
  BRAID_CO_CHECK(check_parameters(parameters, kAcceptPrivateMax));
  BRAID_CO_TRY(IbvQp* const ours, connectable(device_, qp));
  if (const auto gone = channel_->try_next()) {
    channel_.reset();
    co_return make_error(Errc::kDisconnected, "{} gave up before it was accepted", peer_text_);
  }
  const auto fail = [&](const base::Error& error) {
    QpAttr attr{};
    attr.qp_state = IBV_QPS_RESET;
    (void)ours->modify(attr, IBV_QP_STATE);
    return error.with("accepting a connection of {}", peer_text_);
  };
  std::unique_ptr<CmChannel> channel;
  // Goes before the channel, and the id with it. The QP may have gone by then.
  struct Accepting {
    Accepting(std::shared_ptr<AcceptingId> in, rdma_cm_id* id) : at(std::move(in)) { at->set(id); }
    ~Accepting() { at->set(nullptr); }
    const std::shared_ptr<AcceptingId> at;
  };
  std::optional<Accepting> accepting(std::in_place, ours->accepting(), channel_->id());
  if (const Status answered = answer(*ours, parameters); !answered.ok()) {
    accepting.reset();
    reject({});
    co_return fail(answered.error());
  }
  channel = std::move(channel_);
  channel->start(reactor);
  Task<CmEvent> next = channel->next();
  Task<std::optional<CmEvent>> limited = reactor.with_timeout(std::move(next), kHandshakeBoundNs);
  const std::optional<CmEvent> event = co_await std::move(limited);
  accepting.reset();
  if (!event) {
    co_return fail(make_error(Errc::kTimedOut, "it did not confirm within {} s",
                              kHandshakeBoundNs / base::kSecond));
  }
  if (event->type != RDMA_CM_EVENT_ESTABLISHED) {
    const bool gone =
        event->type == RDMA_CM_EVENT_REJECTED || event->type == RDMA_CM_EVENT_DISCONNECTED;
    co_return fail(gone ? make_error(Errc::kDisconnected, "it gave up")
                        : connect_error(event->type, event->status, peer_text_));
  }
  std::vector<std::byte> data = std::move(event_.private_data);
  co_return std::make_unique<IbvConnection>(device_.library(), std::move(channel), ours->new_hold(),
                                            std::move(data), peer_text_);
}

class IbvListener final : public Listener {
 public:
  IbvListener(IbvDevice& device, base::Reactor& reactor, std::unique_ptr<CmChannel> channel,
              Address address, int backlog)
      : device_(device),
        channel_(std::move(channel)),
        address_(std::move(address)),
        backlog_(static_cast<size_t>(backlog)),
        refusals_(reactor, device.host().log(), kLines),
        requests_(std::make_shared<soft::RequestQueue>(reactor)) {
    channel_->start(reactor);
    channel_->on_event([this](CmEvent event) { happened(std::move(event)); });
  }
  ~IbvListener() override { requests_->close(); }

  Task<Result<std::unique_ptr<ConnectRequest>>> next() override {
    return soft::RequestQueue::take(requests_);
  }
  Address address() const override { return address_; }

 private:
  void happened(CmEvent event);
  Status take(rdma_cm_id* id, CmEvent event);

  IbvDevice& device_;
  const std::unique_ptr<CmChannel> channel_;
  const Address address_;
  const size_t backlog_;
  base::LimitedLog refusals_;
  const std::shared_ptr<soft::RequestQueue> requests_;
};

void IbvListener::happened(CmEvent event) {
  rdma_cm_id* const id = std::exchange(event.request, nullptr);
  if (id == nullptr) return;
  const Status taken = take(id, std::move(event));
  if (taken.ok()) return;
  refusals_.warning("listener at {}: {}", text_of(address_), taken.error().message());
  // Destroying the id of a request rejects it.
  (void)device_.library().cm.destroy_id(id);
}

Status IbvListener::take(rdma_cm_id* id, CmEvent event) {
  const char* const through = id->verbs != nullptr ? id->verbs->device->name : "no device";
  if (device_.info().name != through) {
    return make_error(Errc::kInvalid, "a connect request came through {}, not {}", through,
                      device_.info().name);
  }
  if (requests_->size() >= backlog_) {
    return make_error(Errc::kBusy, "{} connect requests wait, as many as may; refused another",
                      backlog_);
  }
  BRAID_TRY(std::unique_ptr<CmChannel> channel, CmChannel::create(device_.shared_library()));
  BRAID_CHECK(channel->adopt(id));
  requests_->push(std::make_unique<IbvRequest>(device_, std::move(channel), std::move(event)));
  return base::ok_status();
}

/// Another id of the channel, bound and listening. `port` 0 takes a free one, which it then tells.
Status listen_at(IbvDevice& device, CmChannel& channel, const std::string& ip, uint16_t& port,
                 int backlog) {
  const Library& library = device.library();
  BRAID_TRY(SocketAddress address, socket_address({ip, port}));
  const std::string text = text_of({ip, port});
  BRAID_CHECK(channel.make_id());
  const auto refuse = [&](int err, const char* what) {
    channel.destroy_last_id();
    if (err == EADDRINUSE) {
      return make_error(Errc::kExists, "somebody listens at {} already", text);
    }
    if (err == EADDRNOTAVAIL || err == ENODEV) {
      return make_error(Errc::kInvalid, "cannot listen at {}: no RDMA device has this address",
                        text);
    }
    return verbs_error(err, fmt::format("{} {}", what, text));
  };
  if (library.cm.bind_addr(channel.id(), address.get()) != 0) return refuse(errno, "binding to");
  const ibv_context* const bound = channel.id()->verbs;
  if (bound != nullptr && device.info().name != bound->device->name) {
    const std::string owner = bound->device->name;
    channel.destroy_last_id();
    return make_error(Errc::kInvalid, "cannot listen at {} on {}: it is an address of {}", text,
                      device.info().name, owner);
  }
  if (library.cm.listen(channel.id(), backlog) != 0) return refuse(errno, "listening at");
  port = address_of(channel.id()->route.addr.src_addr).port;
  return base::ok_status();
}

/// Listens at all of the device's addresses of the wildcard's family, at one port. (The CM's own
/// wildcard would take the port of all devices.)
Status listen_at_all(IbvDevice& device, CmChannel& channel, bool v4, uint16_t& port, int backlog) {
  std::vector<std::string> ips = device.addresses();
  // As TCP's, the wildcard of IPv6 takes IPv4 too.
  if (v4)
    std::erase_if(ips, [](const std::string& ip) { return ip.find(':') != std::string::npos; });
  if (ips.empty()) {
    if (!device.addresses().empty()) {
      return make_error(Errc::kInvalid, "{} has no IPv4 address to listen at", device.info().name);
    }
    return listen_at(device, channel, v4 ? "0.0.0.0" : "::", port, backlog);
  }
  const bool any_port = port == 0;
  for (int attempt = 0;; ++attempt) {
    Status done = base::ok_status();
    size_t made = 0;
    for (const std::string& ip : ips) {
      done = listen_at(device, channel, ip, port, backlog);
      if (!done.ok()) break;
      ++made;
    }
    if (done.ok()) return done;
    for (; made > 0; --made) channel.destroy_last_id();
    // A port that was free at one address may be taken at the next.
    if (!any_port || done.error().code() != Errc::kExists || attempt == kFreePortTries) return done;
    port = 0;
  }
}

}  // namespace

Result<std::unique_ptr<Listener>> IbvDevice::listen(base::Reactor& reactor, const Address& address,
                                                    int backlog) {
  BRAID_TRY(const SocketAddress wanted, socket_address(address));
  BRAID_TRY(std::unique_ptr<CmChannel> channel, CmChannel::create(library_));
  const int bounded = std::clamp(backlog, 1, 4096);
  uint16_t port = address.port;
  if (wanted.is_wildcard()) {
    const bool v4 = wanted.storage.ss_family == AF_INET;
    BRAID_CHECK(listen_at_all(*this, *channel, v4, port, bounded));
  } else {
    BRAID_CHECK(listen_at(*this, *channel, address.ip, port, bounded));
  }
  const Address chosen{address.ip, port};
  return std::unique_ptr<Listener>(
      std::make_unique<IbvListener>(*this, reactor, std::move(channel), chosen, bounded));
}

}  // namespace braid::vhca::ibv
