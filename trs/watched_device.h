// For tests: a device whose queue pairs tell of what is posted to them. Everything goes to the
// device behind it.
//
// Threads: those of the device's queue pairs.
#pragma once

#include <memory>
#include <utility>

#include "trs/forwarding_device.h"
#include "vhca/device.h"

namespace braid::trs::testing {

class WatchedDevice : public ForwardingDevice {
 public:
  class WatchedPd;

  using ForwardingDevice::ForwardingDevice;

  base::Result<std::unique_ptr<vhca::Pd>> alloc_pd() override {
    BRAID_TRY(std::unique_ptr<vhca::Pd> pd, behind_->alloc_pd());
    return std::unique_ptr<vhca::Pd>(std::make_unique<WatchedPd>(*this, std::move(pd)));
  }
  base::Result<std::unique_ptr<vhca::Listener>> listen(base::Reactor& reactor,
                                                       const vhca::Address& address,
                                                       int backlog) override {
    BRAID_TRY(std::unique_ptr<vhca::Listener> listener, behind_->listen(reactor, address, backlog));
    return std::unique_ptr<vhca::Listener>(std::make_unique<WatchedListener>(std::move(listener)));
  }
  base::Task<base::Result<vhca::ConnectResult>> connect(base::Reactor& reactor, vhca::Qp& qp,
                                                        vhca::Address peer,
                                                        vhca::ConnectParameters parameters,
                                                        uint64_t timeout_ns) override {
    return behind_->connect(reactor, static_cast<WatchedQp&>(qp).behind(), std::move(peer),
                            parameters, timeout_ns);
  }

  class WatchedPd final : public vhca::Pd {
   public:
    WatchedPd(WatchedDevice& device, std::unique_ptr<vhca::Pd> behind)
        : device_(device), behind_(std::move(behind)) {}
    base::Result<std::unique_ptr<vhca::Mr>> reg_mr(std::byte* address, uint64_t length_bytes,
                                                   int access) override {
      return behind_->reg_mr(address, length_bytes, access);
    }
    void dereg_mr(std::unique_ptr<vhca::Mr> mr, std::shared_ptr<void> memory) override {
      behind_->dereg_mr(std::move(mr), std::move(memory));
    }
    base::Result<std::unique_ptr<vhca::Qp>> create_qp(const vhca::QpOptions& options) override;
    /// Registered until the domain ends. Once.
    uint32_t lkey_of(std::byte* bytes, uint32_t length) {
      source_ = std::move(*behind_->reg_mr(bytes, length, 0));
      return source_->lkey;
    }

   private:
    WatchedDevice& device_;
    const std::unique_ptr<vhca::Pd> behind_;
    std::unique_ptr<vhca::Mr> source_;  // of lkey_of()
  };

 private:
  /// Before it is posted to `qp`, which is that of the device behind.
  virtual void posts(WatchedPd& pd, vhca::Qp& qp, const vhca::SendWr& wr) = 0;
  /// What is posted to it is never heard of again.
  virtual bool loses(const vhca::Qp& qp) {
    (void)qp;
    return false;
  }

  class WatchedQp final : public vhca::Qp {
   public:
    WatchedQp(WatchedDevice& device, WatchedPd& pd, std::unique_ptr<vhca::Qp> behind)
        : device_(device), pd_(pd), behind_(std::move(behind)) {}
    vhca::Qp& behind() { return *behind_; }
    int post_send(const vhca::SendWr* wr, const vhca::SendWr** bad) override {
      for (const vhca::SendWr* each = wr; each != nullptr; each = each->next)
        device_.posts(pd_, *behind_, *each);
      if (device_.loses(*behind_)) return 0;
      return behind_->post_send(wr, bad);
    }
    int post_recv(const vhca::RecvWr* wr, const vhca::RecvWr** bad) override {
      return behind_->post_recv(wr, bad);
    }
    base::Status modify(const vhca::QpAttr& attr, int mask) override {
      return behind_->modify(attr, mask);
    }
    vhca::QpAttr query() const override { return behind_->query(); }
    vhca::QpOptions options() const override { return behind_->options(); }
    uint32_t number() const override { return behind_->number(); }
    uint64_t arrived_bytes() const override { return behind_->arrived_bytes(); }
    void share_wire_budget(std::shared_ptr<vhca::WireBudget> budget) override {
      behind_->share_wire_budget(std::move(budget));
    }
    bool holds_posts() const override { return behind_->holds_posts(); }
    bool shares_fate() const override { return behind_->shares_fate(); }
    void send_posted() override { behind_->send_posted(); }

   private:
    WatchedDevice& device_;
    WatchedPd& pd_;
    const std::unique_ptr<vhca::Qp> behind_;
  };

  class WatchedRequest final : public vhca::ConnectRequest {
   public:
    explicit WatchedRequest(std::unique_ptr<vhca::ConnectRequest> behind)
        : behind_(std::move(behind)) {}
    std::span<const std::byte> private_data() const override { return behind_->private_data(); }
    std::string peer_text() const override { return behind_->peer_text(); }
    base::Task<base::Result<std::unique_ptr<vhca::Connection>>> accept(
        base::Reactor& reactor, vhca::Qp& qp, vhca::ConnectParameters parameters) override {
      return behind_->accept(reactor, static_cast<WatchedQp&>(qp).behind(), parameters);
    }
    void reject(std::span<const std::byte> private_data) override { behind_->reject(private_data); }

   private:
    const std::unique_ptr<vhca::ConnectRequest> behind_;
  };

  class WatchedListener final : public vhca::Listener {
   public:
    explicit WatchedListener(std::unique_ptr<vhca::Listener> behind) : behind_(std::move(behind)) {}
    base::Task<base::Result<std::unique_ptr<vhca::ConnectRequest>>> next() override;
    vhca::Address address() const override { return behind_->address(); }

   private:
    const std::unique_ptr<vhca::Listener> behind_;
  };
};

inline base::Result<std::unique_ptr<vhca::Qp>> WatchedDevice::WatchedPd::create_qp(
    const vhca::QpOptions& options) {
  BRAID_TRY(std::unique_ptr<vhca::Qp> qp, behind_->create_qp(options));
  return std::unique_ptr<vhca::Qp>(std::make_unique<WatchedQp>(device_, *this, std::move(qp)));
}

inline base::Task<base::Result<std::unique_ptr<vhca::ConnectRequest>>>
WatchedDevice::WatchedListener::next() {
  BRAID_CO_TRY(std::unique_ptr<vhca::ConnectRequest> request, co_await behind_->next());
  co_return std::unique_ptr<vhca::ConnectRequest>(
      std::make_unique<WatchedRequest>(std::move(request)));
}

}  // namespace braid::trs::testing
