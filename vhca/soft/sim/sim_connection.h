// The connection manager's objects over simulated ends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "base/sim.h"
#include "vhca/device.h"
#include "vhca/soft/request_queue.h"
#include "vhca/soft/sim/sim_end.h"

namespace braid::vhca::soft {
class SoftQp;
}

namespace braid::vhca::soft::sim {

class SimWire;

/// kInvalid unless the QP is in RESET or INIT.
base::Status check_connectable(const SoftQp& qp);

class SimConnection final : public Connection {
 public:
  explicit SimConnection(std::shared_ptr<SimEnd> end) : end_(std::move(end)) {}
  ~SimConnection() override { end_->disconnect(); }

  std::span<const std::byte> peer_private_data() const override {
    return end_->peer_private_data();
  }
  void disconnect() override { end_->disconnect(); }
  bool disconnected() const override { return end_->phase() == SimEnd::Phase::kOver; }
  void on_disconnect(std::function<void()> callback) override;
  std::string peer_text() const override { return end_->peer_text(); }

 private:
  const std::shared_ptr<SimEnd> end_;
};

class SimConnectRequest final : public ConnectRequest {
 public:
  SimConnectRequest(SimWire& wire, std::shared_ptr<SimEnd> end, uint32_t peer_qp_number,
                    std::span<const std::byte> private_data);
  ~SimConnectRequest() override;

  std::span<const std::byte> private_data() const override { return private_data_; }
  std::string peer_text() const override;
  base::Task<base::Result<std::unique_ptr<Connection>>> accept(
      base::Reactor& reactor, Qp& qp, ConnectParameters parameters) override;
  void reject(std::span<const std::byte> private_data) override;

 private:
  SimWire& wire_;
  std::shared_ptr<SimEnd> end_;  // null once decided
  const uint32_t peer_qp_number_;
  const std::vector<std::byte> private_data_;
};

class SimListener final : public Listener, public base::sim::IncomingHandler {
 public:
  static base::Result<std::unique_ptr<Listener>> create(base::sim::SimHost& process, SimWire& wire,
                                                        base::Reactor& reactor,
                                                        const Address& address, int backlog);
  ~SimListener() override;

  base::Task<base::Result<std::unique_ptr<ConnectRequest>>> next() override;
  Address address() const override;
  void incoming(std::unique_ptr<base::sim::Channel> channel,
                std::span<const std::byte> message) override;

 private:
  SimListener(SimWire& wire, base::Reactor& reactor, size_t backlog);

  SimWire& wire_;
  const size_t backlog_;
  base::Reactor& reactor_;
  const std::shared_ptr<RequestQueue> requests_;
  std::unique_ptr<base::sim::FabricListener> listener_;
};

}  // namespace braid::vhca::soft::sim
