// IbvDevice: an RDMA device of this machine, opened through libibverbs. Private to vhca/ibv.
//
// Threads: any; create and destroy it on the control reactor's thread, which also takes the
// kernel's asynchronous events.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "vhca/device.h"
#include "vhca/ibv/cq.h"
#include "vhca/ibv/library.h"
#include "vhca/ibv_device.h"

namespace braid::vhca::ibv {

class IbvQp;

class IbvDevice final : public Device {
 public:
  static base::Result<std::unique_ptr<Device>> create(base::Host& host, base::Reactor& control,
                                                      std::shared_ptr<const Library> library,
                                                      ibv_device& device,
                                                      const IbvOptions& options = {});
  ~IbvDevice() override;

  const DeviceInfo& info() const override { return info_; }
  base::Reactor& control_reactor() override { return control_; }
  DeviceAttr query() const override { return attr_; }
  base::Result<PortAttr> query_port(uint8_t port) const override;
  base::Result<Gid> query_gid(uint8_t port, int index) const override;
  base::Result<uint16_t> query_pkey(uint8_t port, int index) const override;
  base::Event& async_event() override { return *async_event_; }
  std::optional<AsyncEvent> next_async_event() override;
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
  const Library& library() const { return *library_; }
  const std::shared_ptr<const Library>& shared_library() const { return library_; }
  ibv_context* verbs() { return context_; }
  /// Of who knows whom among windows and memory.
  const std::shared_ptr<std::mutex>& windows_lock() const { return windows_lock_; }
  /// The IP addresses of its ports, each once. Empty on InfiniBand, whose GIDs are none.
  std::vector<std::string> addresses() const;
  /// The only one to connect from; empty: any of them.
  const std::string& source_ip() const { return source_ip_; }
  // --- QPs by number, for what the device says of them
  void add_qp(IbvQp& qp);
  /// When it returns nothing is told to the QP any more.
  void remove_qp(uint32_t number);
  /// A completion said so.
  void qp_failed(uint32_t number);
  /// Runs `end` while no event can be taken, and forgets those of the object.
  template <typename Object, typename End>
  void forget_events(Object* AsyncEvent::*member, const Object& object, End end) {
    const std::lock_guard guard(async_lock_);
    fetch_async_events();
    std::erase_if(async_events_, [&](const AsyncEvent& event) { return event.*member == &object; });
    end();
  }

 private:
  IbvDevice(base::Host& host, base::Reactor& control, std::shared_ptr<const Library> library,
            ibv_context* context, const IbvOptions& options);
  base::Status start();
  static void async_readable(base::Watch& watch);
  void fetch_async_events();
  void keep_event(const AsyncEvent& event);
  void heard_of_peer(const ibv_qp& qp);

  base::Host& host_;
  base::Reactor& control_;
  const std::shared_ptr<const Library> library_;
  ibv_context* const context_;
  const DeviceInfo info_;
  const std::string source_ip_;
  const bool rxe_windows_;
  DeviceAttr attr_{};
  const std::shared_ptr<std::mutex> windows_lock_ = std::make_shared<std::mutex>();
  const BorrowedHandle async_handle_;
  base::Watch async_watch_;
  std::unique_ptr<base::Event> async_event_;
  std::mutex async_lock_;
  std::deque<AsyncEvent> async_events_;  // async_lock_
  std::mutex qps_lock_;                  // inside of async_lock_
  std::map<uint32_t, IbvQp*> qps_;       // qps_lock_
};

class IbvPd final : public Pd {
 public:
  IbvPd(IbvDevice& device, ibv_pd* pd) : device_(device), pd_(pd) {}
  ~IbvPd() override;
  base::Result<std::unique_ptr<Mr>> reg_mr(std::byte* address, uint64_t length_bytes,
                                           int access) override;
  base::Result<std::unique_ptr<Qp>> create_qp(const QpOptions& options) override;
  base::Result<std::unique_ptr<Srq>> create_srq(const SrqOptions& options) override;
  base::Result<std::unique_ptr<Mw>> alloc_mw(ibv_mw_type type) override;
  IbvDevice& device() { return device_; }
  ibv_pd* verbs() { return pd_; }

 private:
  IbvDevice& device_;
  ibv_pd* const pd_;
};

/// What is known of a device's ports.
std::vector<IbvPortInfo> ports_of(const Library& library, ibv_context* context, int count);

/// The devices of the machine while it exists.
class DeviceList {
 public:
  static base::Result<DeviceList> get(std::shared_ptr<const Library> library);
  DeviceList(DeviceList&& other) noexcept
      : library_(std::move(other.library_)),
        list_(std::exchange(other.list_, nullptr)),
        count_(other.count_) {}
  DeviceList& operator=(DeviceList&&) = delete;
  ~DeviceList();
  std::span<ibv_device*> devices() const { return {list_, count_}; }

 private:
  DeviceList(std::shared_ptr<const Library> library, ibv_device** list, size_t count)
      : library_(std::move(library)), list_(list), count_(count) {}
  std::shared_ptr<const Library> library_;
  ibv_device** list_;
  size_t count_;
};

}  // namespace braid::vhca::ibv
