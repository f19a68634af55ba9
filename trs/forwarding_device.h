// For tests: a device that gives everything to the one behind it, to be changed in parts.
//
// Threads: those of the device behind it.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "vhca/device.h"

namespace braid::trs::testing {

class ForwardingDevice : public vhca::Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<vhca::Device> behind) : behind_(std::move(behind)) {}

  const vhca::DeviceInfo& info() const override { return behind_->info(); }
  base::Reactor& control_reactor() override { return behind_->control_reactor(); }
  vhca::DeviceAttr query() const override { return behind_->query(); }
  base::Result<vhca::PortAttr> query_port(uint8_t port) const override {
    return behind_->query_port(port);
  }
  base::Result<vhca::Gid> query_gid(uint8_t port, int index) const override {
    return behind_->query_gid(port, index);
  }
  base::Result<uint16_t> query_pkey(uint8_t port, int index) const override {
    return behind_->query_pkey(port, index);
  }
  base::Event& async_event() override { return behind_->async_event(); }
  std::optional<vhca::AsyncEvent> next_async_event() override {
    return behind_->next_async_event();
  }
  std::unique_ptr<vhca::Td> create_td() override { return behind_->create_td(); }
  base::Result<std::unique_ptr<vhca::Pd>> alloc_pd() override { return behind_->alloc_pd(); }
  base::Result<std::unique_ptr<vhca::CompChannel>> create_comp_channel() override {
    return behind_->create_comp_channel();
  }
  base::Result<std::unique_ptr<vhca::Cq>> create_cq(const vhca::CqOptions& options) override {
    return behind_->create_cq(options);
  }
  base::Result<std::unique_ptr<vhca::Listener>> listen(base::Reactor& reactor,
                                                       const vhca::Address& address,
                                                       int backlog) override {
    return behind_->listen(reactor, address, backlog);
  }
  base::Task<base::Result<vhca::ConnectResult>> connect(base::Reactor& reactor, vhca::Qp& qp,
                                                        vhca::Address peer,
                                                        vhca::ConnectParameters parameters,
                                                        uint64_t timeout_ns) override {
    return behind_->connect(reactor, qp, std::move(peer), parameters, timeout_ns);
  }

 protected:
  const std::unique_ptr<vhca::Device> behind_;
};

}  // namespace braid::trs::testing
