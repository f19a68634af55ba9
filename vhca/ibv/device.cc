#include "vhca/ibv/device.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "vhca/ibv/memory.h"
#include "vhca/ibv/qp.h"
#include "vhca/ibv/srq.h"
#include "vhca/ibv/words.h"

namespace braid::vhca::ibv {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

class IbvTd final : public Td {};

bool is_qp_event(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return true;
    default:
      return false;
  }
}

bool is_port_event(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      return true;
    default:
      return false;
  }
}

AsyncEvent translate(const ibv_async_event& raw) {
  AsyncEvent event;
  event.type = raw.event_type;
  if (is_qp_event(raw.event_type)) {
    event.qp = static_cast<IbvQp*>(raw.element.qp->qp_context);
  } else if (raw.event_type == IBV_EVENT_CQ_ERR) {
    auto* const cq = static_cast<IbvCq*>(raw.element.cq->cq_context);
    cq->set_overrun();
    event.cq = cq;
  } else if (raw.event_type == IBV_EVENT_SRQ_ERR || raw.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
    event.srq = static_cast<IbvSrq*>(raw.element.srq->srq_context);
  } else if (is_port_event(raw.event_type)) {
    event.port = static_cast<uint8_t>(raw.element.port_num);
  }
  return event;
}

/// A request that is repeated takes the binds and invalidations behind it along, which rxe then
/// does again; kernel 6.1 does not return from that (docs/rdma-devices.md).
bool is_rxe(const DeviceAttr& attr) {
  constexpr uint32_t kRxeVendor = 0xffffff;
  return attr.vendor_id == kRxeVendor && attr.vendor_part_id == 0;
}
constexpr unsigned kWindowFlags = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

}  // namespace

IbvDevice::IbvDevice(base::Host& host, base::Reactor& control,
                     std::shared_ptr<const Library> library, ibv_context* context,
                     const IbvOptions& options)
    : host_(host),
      control_(control),
      library_(std::move(library)),
      context_(context),
      info_{context->device->name, fmt::format("RDMA device {}", context->device->name)},
      source_ip_(options.source_ip),
      rxe_windows_(options.rxe_windows),
      async_handle_(context->async_fd),
      async_event_(host.create_event()) {}

Result<std::unique_ptr<Device>> IbvDevice::create(base::Host& host, base::Reactor& control,
                                                  std::shared_ptr<const Library> library,
                                                  ibv_device& device, const IbvOptions& options) {
  if (device.transport_type == IBV_TRANSPORT_IWARP) {
    return make_error(Errc::kNotSupported,
                      "{} is an iWARP device, which has no RDMA write with immediate data: use an "
                      "InfiniBand or RoCE one",
                      device.name);
  }
  ibv_context* const context = library->verbs.open_device(&device);
  if (context == nullptr) {
    return verbs_error(errno, fmt::format("opening RDMA device {}", device.name));
  }
  std::unique_ptr<IbvDevice> made(
      new IbvDevice(host, control, std::move(library), context, options));
  BRAID_CHECK(made->start());
  return std::unique_ptr<Device>(std::move(made));
}

Status IbvDevice::start() {
  if (!async_event_) return make_error(Errc::kNoMemory, "no descriptor is left for {}", info_.name);
  BRAID_CHECK(set_non_blocking(context_->async_fd));
  if (const int err = library_->verbs.query_device(context_, &attr_); err != 0) {
    return verbs_error(err, fmt::format("querying RDMA device {}", info_.name));
  }
  if (is_rxe(attr_) && !rxe_windows_) {
    attr_.device_cap_flags &= ~(kWindowFlags | IBV_DEVICE_MEM_WINDOW);
    attr_.max_mw = 0;
  }
  async_watch_.ready = &IbvDevice::async_readable;
  async_watch_.context = this;
  control_.io().watch_readable(async_handle_, async_watch_);
  return base::ok_status();
}

IbvDevice::~IbvDevice() {
  control_.io().unwatch(async_watch_);
  (void)library_->verbs.close_device(context_);
}

Result<PortAttr> IbvDevice::query_port(uint8_t port) const {
  if (port < 1 || port > attr_.phys_port_cnt) {
    return make_error(Errc::kNotFound, "port {} of {}, which has {}", port, info_.name,
                      attr_.phys_port_cnt);
  }
  PortAttr attr;
  const int err = library_->query_port(context_, port, attr);
  if (err == 0) return attr;
  return verbs_error(err, fmt::format("querying port {} of {}", port, info_.name));
}

Result<Gid> IbvDevice::query_gid(uint8_t port, int index) const {
  BRAID_TRY(const PortAttr of_port, query_port(port));
  if (index < 0 || index >= of_port.gid_tbl_len) {
    return make_error(Errc::kNotFound, "GID {} of port {} of {}, which has {}", index, port,
                      info_.name, of_port.gid_tbl_len);
  }
  Gid gid{};
  if (library_->verbs.query_gid(context_, port, index, &gid) == 0) return gid;
  return verbs_error(errno,
                     fmt::format("querying GID {} of port {} of {}", index, port, info_.name));
}

Result<uint16_t> IbvDevice::query_pkey(uint8_t port, int index) const {
  BRAID_TRY(const PortAttr of_port, query_port(port));
  if (index < 0 || index >= of_port.pkey_tbl_len) {
    return make_error(Errc::kInvalid, "P_Key {} of port {} of {}, which has {}", index, port,
                      info_.name, of_port.pkey_tbl_len);
  }
  __be16 raw = 0;
  if (library_->verbs.query_pkey(context_, port, index, &raw) != 0) {
    return verbs_error(errno,
                       fmt::format("querying P_Key {} of port {} of {}", index, port, info_.name));
  }
  return ntohs(raw);
}

std::vector<std::string> IbvDevice::addresses() const {
  std::vector<std::string> all;
  for (const IbvPortInfo& port : ports_of(*library_, context_, attr_.phys_port_cnt)) {
    all.insert(all.end(), port.addresses.begin(), port.addresses.end());
  }
  return all;
}

// --- QPs

void IbvDevice::add_qp(IbvQp& qp) {
  const std::lock_guard guard(qps_lock_);
  qps_[qp.number()] = &qp;
}

void IbvDevice::remove_qp(uint32_t number) {
  const std::lock_guard guard(qps_lock_);
  qps_.erase(number);
}

void IbvDevice::qp_failed(uint32_t number) {
  const std::lock_guard guard(qps_lock_);
  if (const auto found = qps_.find(number); found != qps_.end()) found->second->device_failed();
}

// --- asynchronous events

void IbvDevice::async_readable(base::Watch& watch) {
  auto& device = *static_cast<IbvDevice*>(watch.context);
  const std::lock_guard guard(device.async_lock_);
  device.fetch_async_events();
}

/// Takes what the kernel has; async_lock_ is held. Acknowledged at once: what an event is about
/// cannot go meanwhile (forget_events).
void IbvDevice::fetch_async_events() {
  ibv_async_event raw{};
  while (library_->verbs.get_async_event(context_, &raw) == 0) {
    keep_event(translate(raw));
    if (raw.event_type == IBV_EVENT_COMM_EST) heard_of_peer(*raw.element.qp);
    library_->verbs.ack_async_event(&raw);
    async_event_->signal();
  }
}

/// What waits of a QP, CQ or SRQ goes with it. What is told of a port or the device would stay, in
/// whatever number, where nobody asks: of those one of each kind waits, in the order of the latest.
void IbvDevice::keep_event(const AsyncEvent& event) {
  if (event.qp == nullptr && event.cq == nullptr && event.srq == nullptr) {
    std::erase_if(async_events_, [&](const AsyncEvent& each) {
      return each.type == event.type && each.port == event.port;
    });
  }
  async_events_.push_back(event);
}

/// The peer sends already: if its confirmation was lost, the CM hears of it from us.
void IbvDevice::heard_of_peer(const ibv_qp& qp) {
  const std::lock_guard guard(qps_lock_);
  if (const auto found = qps_.find(qp.qp_num); found != qps_.end()) found->second->peer_speaks();
}

std::optional<AsyncEvent> IbvDevice::next_async_event() {
  const std::lock_guard guard(async_lock_);
  async_event_->consume();
  fetch_async_events();
  if (async_events_.empty()) return std::nullopt;
  const AsyncEvent event = async_events_.front();
  async_events_.pop_front();
  if (!async_events_.empty()) async_event_->signal();
  return event;
}

// --- making

std::unique_ptr<Td> IbvDevice::create_td() {
  return std::make_unique<IbvTd>();
}

Result<std::unique_ptr<Pd>> IbvDevice::alloc_pd() {
  ibv_pd* const pd = library_->verbs.alloc_pd(context_);
  if (pd == nullptr) return verbs_error(errno, "allocating a protection domain");
  return std::unique_ptr<Pd>(std::make_unique<IbvPd>(*this, pd));
}

Result<std::unique_ptr<CompChannel>> IbvDevice::create_comp_channel() {
  BRAID_TRY(auto channel, IbvCompChannel::create(library_, context_));
  return std::unique_ptr<CompChannel>(std::move(channel));
}

Result<std::unique_ptr<Cq>> IbvDevice::create_cq(const CqOptions& options) {
  return IbvCq::create(*this, options);
}

IbvPd::~IbvPd() {
  BRAID_ASSERT(device_.library().verbs.dealloc_pd(pd_) != EBUSY);
}

Result<std::unique_ptr<Mr>> IbvPd::reg_mr(std::byte* address, uint64_t length_bytes, int access) {
  ibv_mr* const raw = device_.library().verbs.reg_mr(pd_, address, length_bytes, access);
  if (raw == nullptr) {
    // rxe 6.1 knows no paging on demand, and says that the call is wrong.
    const bool unknown = errno == EINVAL && (access & IBV_ACCESS_ON_DEMAND) != 0;
    return verbs_error(
        unknown ? EOPNOTSUPP : errno,
        fmt::format("registering {} bytes of memory with access {:#x}", length_bytes, access));
  }
  auto mr = std::make_unique<IbvMr>(device_.host(), device_.shared_library(),
                                    device_.windows_lock(), raw);
  mr->access = access;
  return std::unique_ptr<Mr>(std::move(mr));
}

Result<std::unique_ptr<Mw>> IbvPd::alloc_mw(ibv_mw_type type) {
  if (type != IBV_MW_TYPE_2) {
    return make_error(Errc::kNotSupported, "memory windows are of type 2 here, not {}",
                      static_cast<int>(type));
  }
  const DeviceAttr attr = device_.query();
  if ((attr.device_cap_flags & kWindowFlags) == 0) {
    return make_error(Errc::kNotSupported, "{} {}", device_.info().name,
                      is_rxe(attr) ? "is of the kernel's rxe driver, whose memory windows can hang "
                                     "the machine when a packet is lost: none are used"
                                   : "has no memory windows of type 2");
  }
  return IbvMw::create(device_.windows_lock(), pd_, type);
}

Result<std::unique_ptr<Srq>> IbvPd::create_srq(const SrqOptions& options) {
  return IbvSrq::create(*this, options);
}

Result<std::unique_ptr<Qp>> IbvPd::create_qp(const QpOptions& options) {
  return IbvQp::create(*this, options);
}

}  // namespace braid::vhca::ibv
