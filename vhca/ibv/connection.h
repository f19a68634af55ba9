// Connections of RDMA CM: made, accepted, ended. Private to vhca/ibv.
//
// Threads: the connection's reactor.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "vhca/device.h"
#include "vhca/ibv/cm_channel.h"
#include "vhca/ibv/device.h"
#include "vhca/ibv/qp.h"

namespace braid::vhca::ibv {

// What RDMA CM leaves of the CM's private data (IP port space).
inline constexpr size_t kConnectPrivateMax = 56;
inline constexpr size_t kAcceptPrivateMax = 196;
inline constexpr size_t kRejectPrivateMax = 148;
// A physical QP with 7 retries may retry for ever on some devices (rxe: no completion within 12 s).
inline constexpr uint8_t kRetryCountMax = 6;

/// The QP, if it is of this device and in a state to be connected.
base::Result<IbvQp*> connectable(IbvDevice& device, Qp& qp);

/// Takes the QP to RTS by what the CM negotiated, with the depths given. On failure it is left in
/// RESET.
base::Status bring_up(IbvQp& qp, rdma_cm_id& id, const ConnectParameters& parameters,
                      uint8_t responder_resources, uint8_t initiator_depth);

class IbvConnection final : public Connection {
 public:
  /// The channel is started, and its id connected.
  IbvConnection(const Library& library, std::unique_ptr<CmChannel> channel,
                std::shared_ptr<QpHold> hold, std::vector<std::byte> private_data,
                std::string peer_text);
  ~IbvConnection() override { disconnect(); }

  std::span<const std::byte> peer_private_data() const override { return private_data_; }
  void disconnect() override;
  bool disconnected() const override { return ended_; }
  void on_disconnect(std::function<void()> callback) override;
  std::string peer_text() const override { return peer_text_; }

 private:
  void happened(const CmEvent& event);
  void end();

  const Library& library_;
  const std::unique_ptr<CmChannel> channel_;
  const std::shared_ptr<QpHold> hold_;
  const std::vector<std::byte> private_data_;
  const std::string peer_text_;
  bool ended_ = false;
  bool ended_by_us_ = false;
  std::function<void()> callback_;
};

/// "10.0.0.1:1234 through rxe_a0"
std::string peer_text_of(rdma_cm_id& id, const IbvDevice& device);

/// The depths and counts of rdma_conn_param, and who we are.
rdma_conn_param conn_param_of(const ConnectParameters& parameters, IbvQp& qp);

}  // namespace braid::vhca::ibv
