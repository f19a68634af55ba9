#include "vhca/ibv/connection.h"

#include <algorithm>
#include <cerrno>

#include "vhca/ibv/words.h"
#include "vhca/qp_state.h"

namespace braid::vhca::ibv {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

// The CM proposes 0, the longest of all (655 ms).
constexpr uint8_t kRnrTimer = 12;  // 0.64 ms, as the software HCA's
// 0.27 s a try, 1.9 s with 6 retries. Software devices answer in the kernel's soft interrupts: with
// 17 ms a try (12), a machine that was busy for 0.1 s lost its connections. Linux's RTRS has 2 s a
// try. A path that is lost is found by heartbeats, long before.
constexpr uint8_t kAckTimeoutMin = 16;

/// What the CM knows for the move to `state`.
Status attributes_for(const Library& library, rdma_cm_id& id, ibv_qp_state state, QpAttr& attr,
                      int& mask) {
  attr = {};
  attr.qp_state = state;
  mask = 0;
  if (library.cm.init_qp_attr(&id, &attr, &mask) == 0) return base::ok_status();
  return verbs_error(errno,
                     fmt::format("asking the CM for what a QP needs in {}", qp_state_text(state)));
}

Status to_init(IbvQp& qp, rdma_cm_id& id, const ConnectParameters& parameters) {
  QpAttr attr;
  int mask = 0;
  BRAID_CHECK(attributes_for(qp.device().library(), id, IBV_QPS_INIT, attr, mask));
  const QpAttr now = qp.query();
  if (now.qp_state == IBV_QPS_INIT) {
    // It keeps its access flags; the port is the CM's choice.
    if (now.port_num == attr.port_num && now.pkey_index == attr.pkey_index) return {};
    return qp.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
  }
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  if (parameters.responder_resources > 0) {
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
    if (qp.device().query().atomic_cap != IBV_ATOMIC_NONE) {
      attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
    }
  }
  return qp.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

Status to_rts(IbvQp& qp, rdma_cm_id& id, const ConnectParameters& parameters,
              uint8_t responder_resources, uint8_t initiator_depth) {
  const Library& library = qp.device().library();
  QpAttr attr;
  int mask = 0;
  BRAID_CHECK(attributes_for(library, id, IBV_QPS_RTR, attr, mask));
  attr.max_dest_rd_atomic = responder_resources;
  attr.min_rnr_timer = kRnrTimer;
  BRAID_CHECK(qp.modify(attr, mask));
  BRAID_CHECK(attributes_for(library, id, IBV_QPS_RTS, attr, mask));
  // Each end's own choice; the CM would take the peer's.
  attr.timeout = parameters.ack_timeout == 0 ? 0 : std::max(parameters.ack_timeout, kAckTimeoutMin);
  attr.retry_cnt = std::min(parameters.retry_count, kRetryCountMax);
  attr.rnr_retry = parameters.rnr_retry_count;
  attr.max_rd_atomic = initiator_depth;
  return qp.modify(attr, mask);
}

}  // namespace

Result<IbvQp*> connectable(IbvDevice& device, Qp& qp) {
  auto* const ours = dynamic_cast<IbvQp*>(&qp);
  if (ours == nullptr || &ours->device() != &device) {
    return make_error(Errc::kInvalid, "QP {} belongs to another device than {}", qp.number(),
                      device.info().name);
  }
  const ibv_qp_state state = ours->state();
  if (state == IBV_QPS_RESET || state == IBV_QPS_INIT) return ours;
  return make_error(Errc::kInvalid, "a QP must be in RESET or INIT to be connected, not in {}",
                    qp_state_text(state));
}

Status bring_up(IbvQp& qp, rdma_cm_id& id, const ConnectParameters& parameters,
                uint8_t responder_resources, uint8_t initiator_depth) {
  Status done = to_init(qp, id, parameters);
  if (done.ok()) done = to_rts(qp, id, parameters, responder_resources, initiator_depth);
  if (done.ok()) return done;
  QpAttr attr{};
  attr.qp_state = IBV_QPS_RESET;
  (void)qp.modify(attr, IBV_QP_STATE);
  return done;
}

rdma_conn_param conn_param_of(const ConnectParameters& parameters, IbvQp& qp) {
  const DeviceAttr device = qp.device().query();
  const auto within = [](uint8_t wanted, int max) {
    return static_cast<uint8_t>(std::min<int>(wanted, max));
  };
  rdma_conn_param param{};
  param.private_data = parameters.private_data.data();
  param.private_data_len = static_cast<uint8_t>(parameters.private_data.size());
  param.responder_resources = within(parameters.responder_resources, device.max_qp_rd_atom);
  param.initiator_depth = within(parameters.initiator_depth, device.max_qp_init_rd_atom);
  param.retry_count = std::min(parameters.retry_count, kRetryCountMax);
  param.rnr_retry_count = parameters.rnr_retry_count;
  param.qp_num = qp.number();
  return param;
}

std::string peer_text_of(rdma_cm_id& id, const IbvDevice& device) {
  return fmt::format("{} through {}", text_of(address_of(id.route.addr.dst_addr)),
                     device.info().name);
}

// --- IbvConnection

IbvConnection::IbvConnection(const Library& library, std::unique_ptr<CmChannel> channel,
                             std::shared_ptr<QpHold> hold, std::vector<std::byte> private_data,
                             std::string peer_text)
    : library_(library),
      channel_(std::move(channel)),
      hold_(std::move(hold)),
      private_data_(std::move(private_data)),
      peer_text_(std::move(peer_text)) {
  channel_->on_event([this](const CmEvent& event) { happened(event); });
}

void IbvConnection::happened(const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      end();
      return;
    default:
      return;  // TIMEWAIT_EXIT, ADDR_CHANGE: of no consequence for a connection that stands
  }
}

void IbvConnection::end() {
  if (ended_) return;
  ended_ = true;
  hold_->fence();
  (void)library_.cm.disconnect(channel_->id());  // answers the peer's DREQ
  if (ended_by_us_ || !callback_) return;
  const std::function<void()> callback = std::exchange(callback_, nullptr);
  callback();  // may destroy this
}

void IbvConnection::disconnect() {
  ended_by_us_ = true;
  callback_ = nullptr;
  end();
}

void IbvConnection::on_disconnect(std::function<void()> callback) {
  if (ended_by_us_) return;
  if (ended_) return callback();
  callback_ = std::move(callback);
}

}  // namespace braid::vhca::ibv
