#include "vhca/soft/device.h"

#include "base/log.h"
#include "vhca/qp_state.h"
#include "vhca/soft/cq.h"
#include "vhca/soft/qp.h"
#include "vhca/soft/srq.h"
#include "vhca/soft/withdrawal.h"

namespace braid::vhca::soft {
namespace {

using base::Errc;
using base::make_error;
using base::Result;

constexpr uint32_t kMrAccessFlags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                    IBV_ACCESS_MW_BIND;
constexpr uint64_t kTellAfterNs = base::kSecond;  // that a deregistration still waits
constexpr unsigned kLooks = 100;                  // before memory is held: a few microseconds
// Hints, which a device may ignore.
constexpr uint32_t kMrOptionalFlags = IBV_ACCESS_OPTIONAL_RANGE;

base::Task<Result<ConnectResult>> refused(base::Error why) {
  co_return why;
}

}  // namespace

Result<std::unique_ptr<Device>> SoftDevice::create(base::Host& host, base::Reactor& control,
                                                   std::string name, std::unique_ptr<Wire> wire,
                                                   uint32_t mr_capacity) {
  std::unique_ptr<base::Event> event = host.create_event();
  if (event == nullptr) return make_error(Errc::kNoMemory, "no event for device {}", name);
  return std::unique_ptr<Device>(new SoftDevice(host, control, std::move(name), std::move(wire),
                                                mr_capacity, std::move(event)));
}

SoftDevice::SoftDevice(base::Host& host, base::Reactor& control, std::string name,
                       std::unique_ptr<Wire> wire, uint32_t mr_capacity,
                       std::unique_ptr<base::Event> async_event)
    : host_(host),
      control_(control),
      wire_(std::move(wire)),
      async_events_(std::move(async_event)),
      mr_table_(host, mr_capacity, wire_->mr_table_memory(mr_capacity)),
      stall_clock_(std::make_shared<StallClock>(control)),
      held_memory_(std::make_shared<HeldMemory>(control, *wire_)),
      info_{.name = std::move(name), .kind = "software HCA, " + wire_->kind_text()} {
  for (uint8_t number = 1; number <= wire_->port_count(); ++number) {
    port_events_.push_back(std::make_unique<PortEvents>());
    wire_->on_port_state(number, [this, number](bool up) { port_is(number, up); });
  }
}

/// The last event that is told is what holds: one of each kind waits at most, in the order of the
/// latest.
void SoftDevice::port_is(uint8_t number, bool up) {
  PortEvents& events = *port_events_[number - 1u];
  AsyncNode& node = up ? events.active : events.error;
  async_events_.forget(node);
  async_events_.raise(node,
                      {.type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, .port = number});
}

SoftDevice::~SoftDevice() {
  stall_clock_->shut_down();
  held_memory_->shut_down();
}

void SoftDevice::add_cq(SoftCq& cq) {
  const std::lock_guard guard(cqs_lock_);
  cqs_.push_back(&cq);
}

void SoftDevice::remove_cq(SoftCq& cq) {
  const std::lock_guard guard(cqs_lock_);
  std::erase(cqs_, &cq);
}

std::vector<SoftCq*> SoftDevice::cqs() {
  const std::lock_guard guard(cqs_lock_);
  return cqs_;
}

DeviceAttr SoftDevice::query() const {
  DeviceAttr attr{};
  attr.max_mr_size = UINT64_MAX;
  attr.page_size_cap = 0xfffff000;
  attr.max_qp = 1 << 16;
  attr.max_qp_wr = kMaxQueueDepth;
  attr.max_sge = kMaxSge;
  attr.max_sge_rd = kMaxSge;
  attr.max_cq = 1 << 16;
  attr.max_cqe = kMaxCqCapacity;
  attr.max_mr = mr_table_.capacity();
  attr.max_pd = 1 << 16;
  attr.max_qp_rd_atom = kMaxReadsOutstanding;
  attr.max_qp_init_rd_atom = kMaxReadsOutstanding;
  attr.max_res_rd_atom = kMaxReadsOutstanding << 16;
  attr.atomic_cap = IBV_ATOMIC_HCA;
  attr.max_srq = 1 << 16;
  attr.max_srq_wr = kMaxQueueDepth;
  attr.max_srq_sge = kMaxSge;
  attr.max_mw = static_cast<int>(mr_table_.capacity() / 2);
  attr.device_cap_flags =
      IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  attr.max_pkeys = 1;
  attr.phys_port_cnt = wire_->port_count();
  return attr;
}

Result<PortAttr> SoftDevice::query_port(uint8_t port) const {
  return wire_->query_port(port);
}

Result<Gid> SoftDevice::query_gid(uint8_t port, int index) const {
  return wire_->query_gid(port, index);
}

Result<uint16_t> SoftDevice::query_pkey(uint8_t port, int index) const {
  constexpr uint16_t kDefaultPartition = 0xffff;
  BRAID_TRY(const PortAttr of_port, query_port(port));
  if (index >= 0 && index < of_port.pkey_tbl_len) return kDefaultPartition;
  return make_error(Errc::kInvalid, "P_Key {} of port {}, which has {}", index, port,
                    of_port.pkey_tbl_len);
}

std::unique_ptr<Td> SoftDevice::create_td() {
  return std::make_unique<SoftTd>();
}

Result<std::unique_ptr<Pd>> SoftDevice::alloc_pd() {
  BRAID_CHECK(host_.adapter_memory("a protection domain"));
  return std::unique_ptr<Pd>(new SoftPd(*this, next_pd_.fetch_add(1, std::memory_order_relaxed)));
}

Result<std::unique_ptr<CompChannel>> SoftDevice::create_comp_channel() {
  std::unique_ptr<base::Event> event = host_.create_event();
  if (event == nullptr) return make_error(Errc::kNoMemory, "no event for a completion channel");
  return std::unique_ptr<CompChannel>(new SoftCompChannel(std::move(event)));
}

Result<std::unique_ptr<Cq>> SoftDevice::create_cq(const CqOptions& options) {
  if (options.capacity < 1 || static_cast<uint32_t>(options.capacity) > kMaxCqCapacity) {
    return make_error(Errc::kInvalid, "CQ capacity {}: must be 1 to {}", options.capacity,
                      kMaxCqCapacity);
  }
  BRAID_CHECK(host_.adapter_memory("a completion queue"));
  return std::unique_ptr<Cq>(new SoftCq(*this, static_cast<uint32_t>(options.capacity),
                                        static_cast<SoftCompChannel*>(options.channel),
                                        options.td != nullptr));
}

Result<std::unique_ptr<Listener>> SoftDevice::listen(base::Reactor& reactor, const Address& address,
                                                     int backlog) {
  return wire_->listen(*this, reactor, address, backlog);
}

base::Task<Result<ConnectResult>> SoftDevice::connect(base::Reactor& reactor, Qp& qp, Address peer,
                                                      ConnectParameters parameters,
                                                      uint64_t timeout_ns) {
  auto* const soft_qp = dynamic_cast<SoftQp*>(&qp);
  if (soft_qp == nullptr || &soft_qp->device() != this) {
    return refused(make_error(Errc::kInvalid, "QP {:#x} belongs to another device", qp.number()));
  }
  const ibv_qp_state state = qp.query().qp_state;
  if (state != IBV_QPS_RESET && state != IBV_QPS_INIT) {
    return refused(make_error(Errc::kInvalid,
                              "a QP must be in RESET or INIT to be connected, not in {}",
                              qp_state_text(state)));
  }
  return wire_->connect(*this, reactor, *soft_qp, std::move(peer), parameters, timeout_ns);
}

// --- SoftPd, SoftMr

Result<std::unique_ptr<Mr>> SoftPd::reg_mr(std::byte* address, uint64_t length_bytes, int access) {
  const auto flags = static_cast<uint32_t>(access);
  const auto start = reinterpret_cast<uint64_t>(address);
  if (address == nullptr || length_bytes == 0 || start + length_bytes < start) {
    return make_error(Errc::kInvalid, "cannot register {} bytes at {:#x}", length_bytes, start);
  }
  if (const uint32_t other = flags & ~(kMrAccessFlags | kMrOptionalFlags); other != 0) {
    return make_error(Errc::kNotSupported, "the software HCA has no access flags {:#x}", other);
  }
  const bool remote_write = (flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (remote_write && (flags & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return make_error(Errc::kInvalid, "access flags {:#x}: remote write requires local write",
                      flags);
  }
  BRAID_CHECK(device_.host().adapter_memory("a registration of memory"));
  MrView view;
  view.access = flags & kMrAccessFlags;
  view.pd = id_;
  view.address = start;
  view.length = length_bytes;
  if ((flags & kRemoteAccessFlags) != 0) {  // else no peer ever looks for it
    view.place = device_.wire().place_memory(address, length_bytes, id_);
  }
  auto key = device_.mr_table().add(view);
  if (!key.ok()) {
    device_.wire().release_memory(view.place);
    return key.error();
  }
  view.key = *key;
  return std::unique_ptr<Mr>(new SoftMr(device_, view));
}

Result<std::unique_ptr<Qp>> SoftPd::create_qp(const QpOptions& options) {
  BRAID_CHECK(device_.host().adapter_memory("a queue pair"));
  return SoftQp::create(*this, options);
}

Result<std::unique_ptr<Srq>> SoftPd::create_srq(const SrqOptions& options) {
  BRAID_CHECK(device_.host().adapter_memory("a shared receive queue"));
  return SoftSrq::create(*this, options);
}

void SoftPd::dereg_mr(std::unique_ptr<Mr> mr, std::shared_ptr<void> memory) {
  static_cast<SoftMr&>(*mr).deregister(std::move(memory));
}

SoftMr::SoftMr(SoftDevice& device, const MrView& view) : device_(device), view_(view) {
  lkey = rkey = view.key;
  addr = reinterpret_cast<void*>(view.address);
  length = view.length;
  address = reinterpret_cast<std::byte*>(view.address);
  length_bytes = view.length;
  access = static_cast<int>(view.access);
}

std::unique_ptr<PeerFence> SoftMr::withdraw() {
  registered_ = false;
  std::unique_ptr<PeerFence> peers = withdraw_memory(device_.mr_table(), device_.wire(), view_);
  // The clock's sends are among them: what it does for a QP it does under the QP's lock.
  return both_fences(std::move(peers), device_.own_threads().fence());
}

bool SoftMr::has_windows() const {
  return device_.mr_table().has_windows(view_.key);
}

/// Until the peers have let go.
static void wait_for(base::Host& host, PeerFence* fence, std::string_view what) {
  if (fence == nullptr) return;
  const uint64_t began_ns = host.now_ns();
  for (bool told = false; !fence->passed(); host.yield()) {
    if (told || host.now_ns() - began_ns < kTellAfterNs) continue;
    told = true;
    host.log().warning("{} waits for a copy by {} (is it stopped?)", what, fence->waits_for());
  }
}

SoftMr::~SoftMr() {
  if (!registered_) return;
  wait_for(device_.host(), withdraw().get(), "the deregistration of memory, but not Pd::dereg_mr,");
  device_.wire().release_memory(view_.place);
}

void SoftMr::deregister(std::shared_ptr<void> memory) {
  std::unique_ptr<PeerFence> fence = withdraw();
  if (fence == nullptr || passes_soon(*fence, kLooks)) {
    device_.wire().release_memory(view_.place);
    return;
  }
  device_.held_memory().hold({.fence = std::move(fence),
                              .length_bytes = view_.length,
                              .place = view_.place,
                              .memory = std::move(memory)});
}

// --- SoftMw

Result<std::unique_ptr<Mw>> SoftPd::alloc_mw(ibv_mw_type type) {
  if (type != IBV_MW_TYPE_2) {
    return make_error(Errc::kNotSupported, "memory windows of type {}: the software HCA has type 2",
                      static_cast<int>(type));
  }
  BRAID_CHECK(device_.host().adapter_memory("a memory window"));
  BRAID_TRY(const uint32_t key, device_.mr_table().add_window(id_));
  return std::unique_ptr<Mw>(new SoftMw(device_, key));
}

SoftMw::SoftMw(SoftDevice& device, uint32_t key) : device_(device), key_(key) {
  rkey = key;
  type = IBV_MW_TYPE_2;
}

SoftMw::~SoftMw() {
  const std::optional<uint32_t> fenced = device_.mr_table().remove_window(key_);
  if (!fenced.has_value()) return;
  wait_for(device_.host(), device_.wire().fence_peers(*fenced).get(), "the end of a memory window");
}

}  // namespace braid::vhca::soft
