// Lane: making its connection, and what connection 0 sends besides requests.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "trs/client/lane.h"
#include "trs/client/path.h"
#include "trs/client/queue.h"
#include "trs/client/session.h"
#include "trs/wire_auth.h"

namespace braid::trs::client {
namespace {

using base::Errc;
using base::make_error;

// Connection 0 carries a few admin requests, heartbeats and the info exchange.
constexpr uint32_t kServiceDepth = 48;
// Receives beyond one per permit: heartbeats, and a batch not posted again yet.
constexpr uint32_t kSpareReceives = 16;

/// Of the headers of a connection: each lies in cache lines of its own.
constexpr uint32_t header_stride(uint32_t user_header_bytes) {
  return (user_header_bytes + uint32_t{wire::kMessageBytesMax} + 63) / 64 * 64;
}
// Those of connection 0 have room for the messages of the set-up, too.
static_assert(header_stride(wire::kUserHeaderBytesMax) >= wire::kProvenInfoReqBytes);

}  // namespace

std::string reject_text(int sys_errno) {
  switch (sys_errno) {
    case ENXIO:
      return "the server does not know this session (it was restarted, or has given it up)";
    case EEXIST:
      return "the server has a path between these two addresses already";
    case EBUSY:
      return "the server has not finished with the former session yet";
    case ENOMEM:
      return "the server has no memory, or no room for another session";
    case EDQUOT:
      return "the server has as many sessions or connections from our address as one may have";
    case EAGAIN:
      return "the server takes no more from our address for now, as too many connect from there";
    case ENOKEY:
      return "the server lets in only clients with a key, and we have none for it";
    case EKEYREJECTED:
      return "the server did not find the proof of our key right";
    case ECONNRESET:
      return "the server found the connect request invalid, or it came out of order";
    default:
      return fmt::format("the server refused the connection (errno {})", sys_errno);
  }
}

namespace {

/// Of the messages that connection 0 takes before any other.
std::vector<uint32_t> message_bytes(const wire::ConnRsp& granted, bool with_key) {
  const auto info_bytes = static_cast<uint32_t>(sizeof(wire::InfoRsp) +
                                                granted.queue_depth * sizeof(wire::SgDescriptor));
  if (!with_key) return {info_bytes};
  return {sizeof(wire::AuthChallenge), sizeof(wire::AuthResult),
          info_bytes + static_cast<uint32_t>(wire::kProofBytes)};
}

}  // namespace

void Lane::connect(const wire::ConnReq& request, PermitPlan plan, uint64_t timeout_ns) {
  connecting_ = true;
  if (base::Status status = queue_.prepare(device_, plan); !status.ok()) {
    ConnectOutcome outcome;
    outcome.status = status.error();
    end_connect(std::move(outcome));
    return;
  }
  connect_task_ = run_connect(request, timeout_ns);
  connect_task_.start();
}

void Lane::end_connect(ConnectOutcome outcome) {
  connecting_ = false;
  path.post_home([&of = path, result = std::move(outcome)]() mutable {
    of.lane_connected(std::move(result));
  });
}

base::Task<void> Lane::run_connect(wire::ConnReq request, uint64_t timeout_ns) {
  ConnectOutcome outcome = co_await try_connect(request, timeout_ns);
  if (!outcome.status.ok()) connection_.reset();
  end_connect(std::move(outcome));
}

base::Task<ConnectOutcome> Lane::try_connect(wire::ConnReq request, uint64_t timeout_ns) {
  ConnectOutcome outcome;
  const bool service = queue_.cid() == 0;
  const uint32_t permits = queue_.in_flight_max();
  ConnectionOptions options;
  options.send_depth = service ? kServiceDepth : permits + permits / 2 + kSendsBesideRequests;
  options.receive_depth = service ? kServiceDepth : permits + kSpareReceives;
  options.header_bytes = header_stride(queue_.session().user_header_bytes_max(queue_.cid()));
  options.control_bytes = service ? wire::kControlBytesMax : 0;
  options.touch_buffers = queue_.session().touch_buffers();
  Queue::Share& share = queue_.share(device_);
  options.channel = share.channel.get();
  options.td = share.td.get();
  Domain& domain = queue_.session().domain();
  vhca::Device& device = domain.device(device_);
  base::Reactor& reactor = queue_.reactor();
  auto created = Connection::create(device, domain.pd(device_), reactor, options, *this);
  if (!created.ok()) {
    outcome.status = created.error();
    co_return outcome;
  }
  connection_ = std::move(created).value();
  queue_.wake();

  vhca::ConnectParameters parameters;
  parameters.private_data = wire::bytes_of(request);
  vhca::Address server = path.server();
  auto connected =
      co_await device.connect(reactor, connection_->qp(), server, parameters, timeout_ns);
  if (!connected.ok()) {
    outcome.status = connected.error();
    co_return outcome;
  }
  if (!connected->connection && connected->reject_private_data.empty()) {
    outcome.status = make_error(
        Errc::kRefused,
        "the server broke off the set-up of connection {} without a reason: it may be short of "
        "memory or descriptors (its log says more)",
        queue_.cid());
    co_return outcome;
  }
  if (!connected->connection) {
    auto rejected = wire::parse_reject(connected->reject_private_data);
    outcome.rejected_errno = rejected.ok() ? *rejected : 0;
    outcome.status =
        rejected.ok() ? make_error(Errc::kRefused, "{}", reject_text(*rejected)) : rejected.error();
    co_return outcome;
  }
  auto granted = wire::parse_accept(connected->connection->peer_private_data());
  if (!granted.ok()) {
    outcome.status = granted.error();
    co_return outcome;
  }
  outcome.granted = *granted;
  outcome.port = connection_->qp().query().port_num;
  std::vector<uint32_t> messages;
  if (service) messages = message_bytes(*granted, queue_.session().key() != nullptr);
  outcome.status = connection_->post_receives(messages, (granted->flags & wire::kNewRkey) != 0);
  if (!outcome.status.ok()) co_return outcome;
  connection_->attach(std::move(connected->connection), [this] {
    trouble(make_error(Errc::kDisconnected, "the server ended connection {}", queue_.cid()));
  });
  co_return outcome;
}

bool Lane::send_message(std::span<const std::byte> message) {
  if (!connection_ || !connection_->open() || !connection_->can_send()) return false;
  std::byte* const at = connection_->next_header();
  std::memcpy(at, message.data(), message.size());
  vhca::Sge piece = {reinterpret_cast<uint64_t>(at), static_cast<uint32_t>(message.size()),
                     connection_->header_lkey()};
  vhca::SendWr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  return connection_->post(wr);
}

bool Lane::probe() {
  if (!connection_ || !connection_->open()) return false;
  // Those that wait for their acknowledgement say as much as one more.
  return !connection_->can_send(kServiceDepth / 2) || connection_->post_probe();
}

}  // namespace braid::trs::client
