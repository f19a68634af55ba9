#include "vhca/soft/tcp/wire.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/log.h"
#include "vhca/soft/device.h"
#include "vhca/soft/qp.h"
#include "vhca/soft/tcp/connection.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft::tcp {

using base::Errc;
using base::make_error;
using base::Result;
using base::Task;

namespace {

/// Streams that were in the middle of a system call when a key went.
class StreamFence final : public PeerFence {
 public:
  struct Seen {
    std::shared_ptr<Activity> activity;
    uint64_t count;
  };
  explicit StreamFence(std::vector<Seen> seen) : seen_(std::move(seen)) {}
  bool passed() override {
    std::erase_if(seen_, [](const Seen& each) {
      return each.activity->count.load(std::memory_order_acquire) != each.count;
    });
    return seen_.empty();
  }
  std::string waits_for() const override { return "a thread of this process"; }

 private:
  std::vector<Seen> seen_;
};

}  // namespace

// --- ports and numbers

std::string TcpWire::kind_text() const {
  return ip_.empty() ? "TCP" : "TCP from " + ip_;
}

Result<PortAttr> TcpWire::query_port(uint8_t port) const {
  if (port != 1) return make_error(Errc::kNotFound, "port {}; this device has port 1", port);
  PortAttr attr{};
  const bool link = ip_.empty() || host_.has_link(ip_).value_or(true);
  const bool up = link && (port_ == nullptr || port_->up());
  attr.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.phys_state = up ? 5 : 3;  // LinkUp, Disabled
  attr.max_mtu = attr.active_mtu = IBV_MTU_4096;
  attr.gid_tbl_len = 1;
  attr.pkey_tbl_len = 1;
  attr.max_msg_sz = kMaxMessageBytes;
  attr.active_width = 1;
  attr.active_speed = 1;
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  return attr;
}

void TcpWire::watch_link(base::Reactor& control) {
  link_watch_ = LinkWatch::create(host_, control, ip_, state_);
}

void TcpWire::on_port_state(uint8_t, std::function<void(bool up)> callback) {
  state_.on_change(std::move(callback));
  if (port_ != nullptr) port_->on_state([this](bool up) { state_.set_port(up); });
}

Result<Gid> TcpWire::query_gid(uint8_t port, int index) const {
  if (port != 1 || index != 0) {
    return make_error(Errc::kNotFound, "GID {} of port {}; this device has GID 0 of port 1", index,
                      port);
  }
  Gid gid{};
  if (ip_.empty() || inet_pton(AF_INET6, ip_.c_str(), gid.raw) == 1) return gid;
  gid.raw[10] = gid.raw[11] = 0xff;  // an IPv4 address, mapped
  if (inet_pton(AF_INET, ip_.c_str(), gid.raw + 12) == 1) return gid;
  return make_error(Errc::kInvalid, "port {} has no IP address but '{}'", port, ip_);
}

uint32_t TcpWire::random_word() {
  uint32_t word = 0;
  host_.random(std::as_writable_bytes(std::span(&word, 1)));
  return word;
}

uint32_t TcpWire::allocate_qp_number() {
  constexpr uint32_t kNumbers = 1u << 24;
  constexpr uint32_t kReserved = 2;  // 0 and 1 name special QPs
  uint32_t number = random_word() % kNumbers;
  const std::lock_guard guard(mutex_);
  if (qp_numbers_.size() >= kNumbers / 2) return 0;
  while (number < kReserved || qp_numbers_.contains(number)) number = (number + 1) % kNumbers;
  qp_numbers_.insert(number);
  return number;
}

void TcpWire::release_qp_number(uint32_t number) {
  const std::lock_guard guard(mutex_);
  qp_numbers_.erase(number);
}

std::shared_ptr<Activity> TcpWire::add_activity() {
  auto activity = std::make_shared<Activity>();
  const std::lock_guard guard(mutex_);
  std::erase_if(activities_, [](const auto& each) { return each.use_count() == 1; });
  activities_.push_back(activity);
  return activity;
}

std::unique_ptr<PeerFence> TcpWire::fence_peers(uint32_t) {
  std::vector<StreamFence::Seen> seen;
  const std::lock_guard guard(mutex_);
  for (const auto& each : activities_) {
    // As one step with the stream's own: it either finds the key gone, or is seen to be busy.
    const uint64_t count = each->count.fetch_add(0, std::memory_order_seq_cst);
    if (count % 2 == 1) seen.push_back({each, count});
  }
  if (seen.empty()) return nullptr;
  return std::make_unique<StreamFence>(std::move(seen));
}

// --- connecting

Result<std::unique_ptr<Listener>> TcpWire::listen(SoftDevice& device, base::Reactor& reactor,
                                                  const Address& address, int backlog) {
  return listen(device, reactor, address, backlog, std::make_shared<RequestQueue>(reactor));
}

Result<std::unique_ptr<Listener>> TcpWire::listen(SoftDevice& device, base::Reactor& reactor,
                                                  const Address& address, int backlog,
                                                  std::shared_ptr<RequestQueue> requests) {
  const base::SocketAddress at{.ip = address.ip, .port = address.port};
  // The kernel's backlog holds those that the reactor has not seen; ours counts requests.
  BRAID_TRY(auto listener, host_.listen_stream(at, std::max(backlog, 128)));
  return std::unique_ptr<Listener>(std::make_unique<TcpListener>(
      *this, device, reactor, std::move(listener), backlog, std::move(requests)));
}

namespace {

/// What a refusal is for the caller: the program's own is a result, others are errors.
Result<ConnectResult> rejected(Cm& cm, const Address& peer) {
  if (cm.reason == RejectReason::kUser) {
    ConnectResult result;
    result.reject_private_data = std::move(cm.private_data);
    return result;
  }
  return make_error(Errc::kRefused, "the listener at {} port {} {}", peer.ip, peer.port,
                    cm.reason == RejectReason::kBacklog
                        ? "has a full backlog"
                        : "found the request invalid; its log says why");
}

}  // namespace

Task<Result<ConnectResult>> TcpWire::connect(SoftDevice&, base::Reactor& reactor, SoftQp& qp,
                                             Address peer, ConnectParameters parameters,
                                             uint64_t timeout_ns) {
  BRAID_CO_CHECK(check_connect(qp, parameters, kConnectPrivateMax));
  Task<Result<ConnectResult>> exchanging = exchange(reactor, qp, peer, parameters);
  std::optional<Result<ConnectResult>> result =
      co_await reactor.with_timeout(std::move(exchanging), timeout_ns);
  if (result.has_value()) co_return std::move(*result);
  co_return make_error(Errc::kTimedOut, "no answer from {} port {}", peer.ip, peer.port);
}

Task<Result<ConnectResult>> TcpWire::exchange(base::Reactor& reactor, SoftQp& qp, Address peer,
                                              ConnectParameters parameters) {
  Task<bool> passing = pass_port(reactor, port_.get());
  (void)co_await std::move(passing);
  const base::SocketAddress to{.ip = peer.ip, .port = peer.port};
  BRAID_CO_TRY(auto socket, host_.connect_stream(ip_, to));
  {
    SocketWait writable(reactor, socket->handle(), /*write=*/true);
    Errc connected = socket->connected();
    while (connected == Errc::kWouldBlock) {
      co_await writable.ready();
      connected = socket->connected();
    }
    if (connected == Errc::kRefused) {
      co_return make_error(connected, "nobody listens at {} port {}", peer.ip, peer.port);
    }
    if (connected != Errc::kOk) {
      co_return make_error(connected, "cannot connect to {} port {}: {}", peer.ip, peer.port,
                           base::to_string(connected));
    }
  }
  const uint32_t epoch = random_word();
  BRAID_CO_CHECK(send_cm(
      *socket, encode_cm(FrameKind::kConnect, epoch, qp.number(), parameters.private_data)));
  CmReader reader;
  Result<Cm> cm = reader.read(*socket);
  {
    SocketWait readable(reactor, socket->handle(), /*write=*/false);
    while (cm.code() == Errc::kWouldBlock) {
      co_await readable.ready();
      cm = reader.read(*socket);
    }
  }
  if (!cm.ok()) co_return cm.error().with("connecting to {} port {}", peer.ip, peer.port);
  if (cm->kind == FrameKind::kReject) co_return rejected(*cm, peer);
  if (cm->kind != FrameKind::kAccept) {
    co_return make_error(Errc::kProtocol, "{} port {} answered a connect request with a request",
                         peer.ip, peer.port);
  }
  TcpStream::Options options;
  options.epoch = cm->epoch;
  options.sends_max = qp.info().max_send_wr;
  options.peer_text = fmt::format("{}:{}", peer.ip, peer.port);
  options.port = port_;
  options.complaints = complaints_;
  options.retry_ns = retry_ns(parameters);
  const auto end =
      std::make_shared<TcpEnd>(host_, reactor, std::move(socket), add_activity(), options);
  ConnectResult result;
  result.connection = std::make_unique<TcpConnection>(end, std::move(cm->private_data));
  BRAID_CO_CHECK(end->establish(qp, cm->qp_number, parameters, /*initiator=*/true));
  co_return result;
}

}  // namespace braid::vhca::soft::tcp

namespace braid::vhca {

base::Result<std::unique_ptr<Device>> create_tcp_device(base::Host& host, base::Reactor& control,
                                                        const TcpDeviceOptions& options) {
  if (!options.ip.empty() && !host.is_local_address(options.ip)) {
    return base::make_error(base::Errc::kNotFound, "{} is no address of this machine", options.ip);
  }
  auto port = options.port_faults ? std::make_shared<soft::Port>() : nullptr;
  auto wire = std::make_unique<soft::tcp::TcpWire>(host, options.ip, std::move(port));
  wire->limit_complaints(control);
  if (!options.ip.empty()) wire->watch_link(control);  // before anybody hears of it: no event yet
  return soft::SoftDevice::create(host, control, options.name, std::move(wire));
}

}  // namespace braid::vhca
