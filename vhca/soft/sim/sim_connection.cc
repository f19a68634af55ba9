#include "vhca/soft/sim/sim_connection.h"

#include <algorithm>

#include "base/sim.h"
#include "vhca/connect_bounds.h"
#include "vhca/qp_state.h"
#include "vhca/soft/qp.h"
#include "vhca/soft/sim/messages.h"
#include "vhca/soft/sim/sim_wire.h"

namespace braid::vhca::soft::sim {

using base::Errc;
using base::make_error;
using base::Result;

base::Status check_connectable(const SoftQp& qp) {
  const ibv_qp_state state = qp.query().qp_state;
  if (state == IBV_QPS_RESET || state == IBV_QPS_INIT) return base::ok_status();
  return make_error(Errc::kInvalid, "a QP must be in RESET or INIT to be connected, not in {}",
                    qp_state_text(state));
}

// --- SimConnection

void SimConnection::on_disconnect(std::function<void()> callback) {
  if (end_->phase() == SimEnd::Phase::kOver) {
    callback();
    return;
  }
  end_->on_over(std::move(callback));
}

// --- SimConnectRequest

SimConnectRequest::SimConnectRequest(SimWire& wire, std::shared_ptr<SimEnd> end,
                                     uint32_t peer_qp_number,
                                     std::span<const std::byte> private_data)
    : wire_(wire),
      end_(std::move(end)),
      peer_qp_number_(peer_qp_number),
      private_data_(private_data.begin(), private_data.end()) {}

SimConnectRequest::~SimConnectRequest() {
  reject({});
}

std::string SimConnectRequest::peer_text() const {
  return end_ != nullptr ? end_->peer_text() : "a peer that was answered";
}

base::Task<Result<std::unique_ptr<Connection>>> SimConnectRequest::accept(
    base::Reactor& reactor, Qp& qp, ConnectParameters parameters) {
  BRAID_CO_CHECK(check_parameters(parameters, kAcceptDataMax));
  auto& soft_qp = static_cast<SoftQp&>(qp);
  BRAID_CO_CHECK(check_connectable(soft_qp));
  if (end_ == nullptr) co_return make_error(Errc::kInvalid, "the request was answered before");
  // From here on the connection owns the end: given up or failed, it disconnects.
  auto connection = std::make_unique<SimConnection>(end_);
  const std::shared_ptr<SimEnd> end = std::move(end_);
  BRAID_CO_CHECK(end->accept(reactor, soft_qp, peer_qp_number_, parameters));
  const bool decided = co_await end->decided();
  if (!decided) {
    co_return make_error(end->why(), "{} went away while it was accepted", end->peer_text());
  }
  co_return std::unique_ptr<Connection>(std::move(connection));
}

void SimConnectRequest::reject(std::span<const std::byte> private_data) {
  if (end_ == nullptr) return;
  end_->reject(RejectReason::kUser,
               private_data.first(std::min(private_data.size(), kRejectDataMax)));
  wire_.linger(std::move(end_));
}

// --- SimListener

Result<std::unique_ptr<Listener>> SimListener::create(base::sim::SimHost& process, SimWire& wire,
                                                      base::Reactor& reactor,
                                                      const Address& address, int backlog) {
  std::unique_ptr<SimListener> listener(
      new SimListener(wire, reactor, static_cast<size_t>(std::max(backlog, 1))));
  const base::sim::FabricAddress at{.ip = address.ip, .port = address.port};
  auto opened = process.fabric().listen(process, at, *listener);
  if (!opened.ok()) return opened.error();
  listener->listener_ = std::move(*opened);
  return std::unique_ptr<Listener>(std::move(listener));
}

SimListener::SimListener(SimWire& wire, base::Reactor& reactor, size_t backlog)
    : wire_(wire),
      backlog_(backlog),
      reactor_(reactor),
      requests_(std::make_shared<RequestQueue>(reactor)) {}

SimListener::~SimListener() {
  listener_.reset();
  requests_->close();
}

base::Task<Result<std::unique_ptr<ConnectRequest>>> SimListener::next() {
  return RequestQueue::take(requests_);
}

Address SimListener::address() const {
  const base::sim::FabricAddress at = listener_->address();
  return {.ip = at.ip, .port = at.port};
}

void SimListener::incoming(std::unique_ptr<base::sim::Channel> channel,
                           std::span<const std::byte> message) {
  const std::optional<Cm> cm = parse_cm(message);
  if (!cm || cm->kind != Kind::kConnect) return;  // dropping the channel closes it
  auto end = std::make_shared<SimEnd>(reactor_);
  end->open(std::move(channel));
  if (requests_->size() >= backlog_) {
    end->reject(RejectReason::kBacklog, {});
    wire_.linger(std::move(end));
    return;
  }
  requests_->push(
      std::make_unique<SimConnectRequest>(wire_, std::move(end), cm->qp_number, cm->private_data));
}

}  // namespace braid::vhca::soft::sim
