// SoftDevice: a software HCA. The core of verbs in user space, over a Wire (soft/wire.h).
//
// Threads: any; destroy it on the control reactor's thread. The wire is destroyed last.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "vhca/device.h"
#include "vhca/soft/async_events.h"
#include "vhca/soft/held_memory.h"
#include "vhca/soft/mr_table.h"
#include "vhca/soft/own_threads.h"
#include "vhca/soft/stall_clock.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft {

inline constexpr uint32_t kMaxSge = 16;
inline constexpr uint32_t kMaxQueueDepth = 32768;
inline constexpr uint32_t kMaxInline = 1024;
inline constexpr uint32_t kMaxCqCapacity = 1u << 22;
inline constexpr uint32_t kMaxReadsOutstanding = 16;
inline constexpr uint32_t kMrCapacity = 65536;
inline constexpr uint32_t kMaxMessageBytes = 1u << 31;

class SoftCq;

class SoftDevice final : public Device {
 public:
  /// kNoMemory: the process has no descriptor left.
  static base::Result<std::unique_ptr<Device>> create(base::Host& host, base::Reactor& control,
                                                      std::string name, std::unique_ptr<Wire> wire,
                                                      uint32_t mr_capacity = kMrCapacity);
  ~SoftDevice() override;

  const DeviceInfo& info() const override { return info_; }
  base::Reactor& control_reactor() override { return control_; }
  DeviceAttr query() const override;
  base::Result<PortAttr> query_port(uint8_t port) const override;
  base::Result<Gid> query_gid(uint8_t port, int index) const override;
  base::Result<uint16_t> query_pkey(uint8_t port, int index) const override;
  base::Event& async_event() override { return async_events_.event(); }
  std::optional<AsyncEvent> next_async_event() override { return async_events_.next(); }
  std::unique_ptr<Td> create_td() override;
  base::Result<std::unique_ptr<Pd>> alloc_pd() override;
  base::Result<std::unique_ptr<CompChannel>> create_comp_channel() override;
  base::Result<std::unique_ptr<Cq>> create_cq(const CqOptions& options) override;
  base::Result<std::unique_ptr<Listener>> listen(base::Reactor& reactor, const Address& address,
                                                 int backlog) override;
  base::Task<base::Result<ConnectResult>> connect(base::Reactor& reactor, Qp& qp, Address peer,
                                                  ConnectParameters parameters,
                                                  uint64_t timeout_ns) override;

  base::Host& host() { return host_; }
  Wire& wire() { return *wire_; }
  MrTable& mr_table() { return mr_table_; }
  StallClock& stall_clock() { return *stall_clock_; }
  HeldMemory& held_memory() { return *held_memory_; }
  OwnThreads& own_threads() { return *own_threads_; }
  AsyncEvents& async_events() { return async_events_; }
  // Its CQs, in the order of their making: for faults made on purpose.
  void add_cq(SoftCq& cq);
  void remove_cq(SoftCq& cq);
  std::vector<SoftCq*> cqs();

 private:
  SoftDevice(base::Host& host, base::Reactor& control, std::string name, std::unique_ptr<Wire> wire,
             uint32_t mr_capacity, std::unique_ptr<base::Event> async_event);
  void port_is(uint8_t number, bool up);

  base::Host& host_;
  base::Reactor& control_;
  const std::unique_ptr<Wire> wire_;
  AsyncEvents async_events_;
  MrTable mr_table_;
  const std::shared_ptr<StallClock> stall_clock_;
  const std::shared_ptr<HeldMemory> held_memory_;
  const std::shared_ptr<OwnThreads> own_threads_ = std::make_shared<OwnThreads>();
  const DeviceInfo info_;
  struct PortEvents {
    AsyncNode error;
    AsyncNode active;
  };
  std::vector<std::unique_ptr<PortEvents>> port_events_;  // by port, from 1
  std::atomic<uint32_t> next_pd_{1};
  std::mutex cqs_lock_;
  std::vector<SoftCq*> cqs_;  // cqs_lock_
};

class SoftPd final : public Pd {
 public:
  SoftPd(SoftDevice& device, uint32_t id) : device_(device), id_(id) {}
  base::Result<std::unique_ptr<Mr>> reg_mr(std::byte* address, uint64_t length_bytes,
                                           int access) override;
  void dereg_mr(std::unique_ptr<Mr> mr, std::shared_ptr<void> memory) override;
  base::Result<std::unique_ptr<Qp>> create_qp(const QpOptions& options) override;
  base::Result<std::unique_ptr<Mw>> alloc_mw(ibv_mw_type type) override;
  base::Result<std::unique_ptr<Srq>> create_srq(const SrqOptions& options) override;
  uint32_t id() const { return id_; }  // never 0
  SoftDevice& device() { return device_; }

 private:
  SoftDevice& device_;
  const uint32_t id_;
};

class SoftMr final : public Mr {
 public:
  SoftMr(SoftDevice& device, const MrView& view);
  ~SoftMr() override;
  bool has_windows() const override;
  /// As Pd::dereg_mr(). Only the destructor follows.
  void deregister(std::shared_ptr<void> memory);

 private:
  std::unique_ptr<PeerFence> withdraw();

  SoftDevice& device_;
  const MrView view_;
  bool registered_ = true;
};

class SoftMw final : public Mw {
 public:
  SoftMw(SoftDevice& device, uint32_t key);
  ~SoftMw() override;

 private:
  SoftDevice& device_;
  const uint32_t key_;  // that of its allocation: names its place in the table
};

class SoftTd final : public Td {};

}  // namespace braid::vhca::soft
