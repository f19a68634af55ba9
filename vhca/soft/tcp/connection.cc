#include "vhca/soft/tcp/connection.h"

#include <algorithm>

#include "base/log.h"
#include "vhca/connect_bounds.h"
#include "vhca/qp_state.h"
#include "vhca/soft/qp.h"

namespace braid::vhca::soft::tcp {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;

namespace {
constexpr uint64_t kHandshakeBoundNs = 5 * base::kSecond;  // for a peer's next message
}  // namespace

// --- SocketWait

SocketWait::SocketWait(base::Reactor& reactor, const base::Handle& handle, bool write)
    : reactor_(reactor), changed_(reactor) {
  watch_.context = this;
  watch_.ready = [](base::Watch& watch) {
    auto& self = *static_cast<SocketWait*>(watch.context);
    self.ready_ = true;
    self.changed_.notify_all();
  };
  if (write) {
    reactor_.io().watch_writable(handle, watch_);
  } else {
    reactor_.io().watch_readable(handle, watch_);
  }
}

Task<void> SocketWait::ready() {
  while (!ready_) co_await changed_.wait();
  ready_ = false;
}

// --- the exchange's messages

Result<Cm> CmReader::read(base::StreamSocket& socket) {
  for (;;) {
    iovec piece{bytes_ + filled_, wanted_ - filled_};
    size_t received = 0;
    const Errc failed = socket.receive({&piece, 1}, received);
    if (failed == Errc::kWouldBlock) return make_error(failed, "not all has come");
    if (failed != Errc::kOk) return make_error(failed, "the peer went away while connecting");
    filled_ += received;
    if (filled_ < wanted_) continue;
    if (wanted_ > sizeof(FrameHeader)) return parse_cm({bytes_, filled_});
    BRAID_TRY(wanted_, cm_frame_bytes({bytes_, filled_}));
  }
}

Status send_cm(base::StreamSocket& socket, std::span<const std::byte> frame) {
  while (!frame.empty()) {
    iovec piece{const_cast<std::byte*>(frame.data()), frame.size()};
    size_t sent = 0;
    if (const Errc failed = socket.send({&piece, 1}, sent); failed != Errc::kOk) {
      return make_error(failed, "the peer went away while connecting");
    }
    frame = frame.subspan(sent);
  }
  return base::ok_status();
}

Status check_connect(const SoftQp& qp, const ConnectParameters& parameters, size_t private_max) {
  BRAID_CHECK(check_parameters(parameters, private_max));
  const ibv_qp_state state = qp.query().qp_state;
  if (state == IBV_QPS_RESET || state == IBV_QPS_INIT) return base::ok_status();
  return make_error(Errc::kInvalid, "a QP must be in RESET or INIT to be connected, not in {}",
                    qp_state_text(state));
}

Result<SoftQp*> qp_of(SoftDevice& device, Qp& qp) {
  auto* const soft = dynamic_cast<SoftQp*>(&qp);
  if (soft != nullptr && &soft->device() == &device) return soft;
  return make_error(Errc::kInvalid, "QP {:#x} belongs to another device", qp.number());
}

// --- TcpConnection

void TcpConnection::on_disconnect(std::function<void()> callback) {
  if (disconnected()) return callback();
  end_->on_over(std::move(callback));
}

// --- TcpRequest

TcpRequest::TcpRequest(TcpWire& wire, SoftDevice& device,
                       std::unique_ptr<base::StreamSocket> socket, Cm cm)
    : wire_(wire),
      device_(device),
      socket_(std::move(socket)),
      cm_(std::move(cm)),
      peer_text_(fmt::format("{}:{}", socket_->peer().ip, socket_->peer().port)) {}

void TcpRequest::reject(std::span<const std::byte> private_data) {
  if (socket_ == nullptr) return;
  const auto frame =
      encode_cm(FrameKind::kReject, cm_.epoch, 0,
                private_data.first(std::min(private_data.size(), kRejectPrivateMax)));
  (void)send_cm(*socket_, frame);
  socket_.reset();
}

Task<Result<std::unique_ptr<Connection>>> TcpRequest::accept(base::Reactor& reactor, Qp& qp,
                                                             ConnectParameters parameters) {
  BRAID_CO_TRY(SoftQp* const soft_qp, qp_of(device_, qp));
  BRAID_CO_CHECK(check_connect(*soft_qp, parameters, kAcceptPrivateMax));
  if (socket_ == nullptr) co_return make_error(Errc::kInvalid, "the request was decided already");
  Task<bool> passing = pass_port(reactor, wire_.shared_port().get());
  (void)co_await std::move(passing);
  if (socket_ == nullptr) co_return make_error(Errc::kInvalid, "the request was decided meanwhile");
  const uint32_t epoch = cm_.epoch ^ wire_.random_word();
  const auto frame =
      encode_cm(FrameKind::kAccept, epoch, soft_qp->number(), parameters.private_data);
  if (Status sent = send_cm(*socket_, frame); !sent.ok()) {
    socket_.reset();
    co_return make_error(Errc::kDisconnected, "{} gave up before it was accepted", peer_text_);
  }
  TcpStream::Options options;
  options.epoch = epoch;
  options.sends_max = soft_qp->info().max_send_wr;
  options.awaits_ready = true;
  options.peer_text = peer_text_;
  options.port = wire_.shared_port();
  options.complaints = wire_.complaints();
  options.retry_ns = retry_ns(parameters);
  const auto end = std::make_shared<TcpEnd>(wire_.host(), reactor, std::move(socket_),
                                            wire_.add_activity(), options);
  // From here on the connection owns the end: given up or failed, it disconnects.
  auto connection = std::make_unique<TcpConnection>(end, cm_.private_data);
  BRAID_CO_CHECK(end->establish(*soft_qp, cm_.qp_number, parameters, /*initiator=*/false));
  Task<bool> deciding = end->decided();
  const std::optional<bool> decided =
      co_await reactor.with_timeout(std::move(deciding), kHandshakeBoundNs);
  if (!decided.has_value()) {
    co_return make_error(Errc::kTimedOut, "{} did not confirm the connection", peer_text_);
  }
  if (!*decided) {
    co_return make_error(Errc::kDisconnected, "{} went away while it was accepted", peer_text_);
  }
  co_return std::unique_ptr<Connection>(std::move(connection));
}

}  // namespace braid::vhca::soft::tcp
