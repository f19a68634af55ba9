// Queue: making its connection, and what connection 0 sends besides requests.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "trs/client/queue.h"
#include "trs/client/session.h"

namespace braid::trs::client {
namespace {

using base::Errc;
using base::make_error;

// Connection 0 carries a few admin requests, heartbeats and the info exchange.
constexpr uint32_t kServiceDepth = 48;
// Receives beyond one per permit: heartbeats, and a batch not posted again yet.
constexpr uint32_t kSpareReceives = 16;
constexpr uint32_t kHeaderStride = 1088;
static_assert(kHeaderStride >= wire::kUserHeaderBytesMax + wire::kMessageBytesMax);
static_assert(kHeaderStride >= sizeof(wire::InfoReq));

std::string reject_text(int sys_errno) {
  switch (sys_errno) {
    case ENXIO:
      return "the server does not know this session (it was restarted, or has given it up)";
    case EEXIST:
      return "the server has a path between these two addresses already";
    case EBUSY:
      return "the server has not finished with the former session yet";
    case ENOMEM:
      return "the server has no room for another session";
    case EOPNOTSUPP:
      return "the server does not take a second path of a session";
    case ECONNRESET:
      return "the server found the connect request invalid, or it came out of order";
    default:
      return fmt::format("the server refused the connection (errno {})", sys_errno);
  }
}

}  // namespace

void Queue::connect(const wire::ConnReq& request, PermitPlan plan, uint64_t timeout_ns) {
  run_here([this, request, plan, timeout_ns] {
    if (base::Status status = prepare(plan); !status.ok()) {
      ConnectOutcome outcome;
      outcome.status = status.error();
      connecting_ = true;
      end_connect(std::move(outcome));
      return;
    }
    connecting_ = true;
    connect_task_ = run_connect(request, timeout_ns);
    connect_task_.start();
  });
}

void Queue::end_connect(ConnectOutcome outcome) {
  connecting_ = false;
  if (!outcome.status.ok()) ++statistics_.reconnects_failed;
  session_.post_home([this, result = std::move(outcome)]() mutable {
    session_.queue_connected(*this, std::move(result));
  });
}

/// What lasts over reconnects.
base::Status Queue::prepare(PermitPlan plan) {
  vhca::Device& device = session_.device();
  if (!channel_) {
    td_ = device.create_td();
    BRAID_TRY(channel_, device.create_comp_channel());
    reactor_.io().watch(channel_->event(), watch_);
    reactor_.add(*this);
  }
  if (!permits_ && plan.queue_depth > 0) {
    PermitPool::Options options;
    options.queue_depth = service_ ? plan.admin : plan.queue_depth;
    options.first = service_ ? 0 : cid_ - 1u;
    options.stride = service_ ? 1 : cid_num_ - 1u;
    options.reserved = service_ ? 0 : plan.admin;
    permits_.emplace(options);
    table_.assign(permits_->slots(), nullptr);
  }
  return {};
}

base::Task<void> Queue::run_connect(wire::ConnReq request, uint64_t timeout_ns) {
  ConnectOutcome outcome = co_await try_connect(request, timeout_ns);
  if (!outcome.status.ok()) connection_.reset();
  end_connect(std::move(outcome));
}

base::Task<ConnectOutcome> Queue::try_connect(wire::ConnReq request, uint64_t timeout_ns) {
  ConnectOutcome outcome;
  const uint32_t permits = permits_ ? permits_->size() : 0;
  ConnectionOptions options;
  options.send_depth = service_ ? kServiceDepth : permits + permits / 2 + 8;
  options.receive_depth = service_ ? kServiceDepth : permits + kSpareReceives;
  options.header_bytes = kHeaderStride;
  options.channel = channel_.get();
  options.td = td_.get();
  vhca::Device& device = session_.device();
  auto created = Connection::create(device, session_.pd(), reactor_, options, *this);
  if (!created.ok()) {
    outcome.status = created.error();
    co_return outcome;
  }
  connection_ = std::move(created).value();

  vhca::ConnectParameters parameters;
  parameters.private_data = wire::bytes_of(request);
  vhca::Address server = session_.server();
  auto connected =
      co_await device.connect(reactor_, connection_->qp(), server, parameters, timeout_ns);
  if (!connected.ok()) {
    outcome.status = connected.error();
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
  if (service_) outcome.status = prepare({granted->queue_depth, admin_permits(*granted)});
  if (outcome.status.ok()) {
    const size_t answer_bytes =
        sizeof(wire::InfoRsp) + granted->queue_depth * sizeof(wire::SgDescriptor);
    outcome.status = connection_->post_receives(service_ ? static_cast<uint32_t>(answer_bytes) : 0,
                                                (granted->flags & wire::kNewRkey) != 0);
  }
  if (!outcome.status.ok()) co_return outcome;
  connection_->attach(std::move(connected->connection), [this] {
    trouble(make_error(Errc::kDisconnected, "the server ended connection {}", cid_));
  });
  co_return outcome;
}

bool Queue::send_message(std::span<const std::byte> message) {
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

void Queue::received_message(Connection&, std::span<const std::byte> message) {
  count_received();
  session_.info_received(message);
}

}  // namespace braid::trs::client
