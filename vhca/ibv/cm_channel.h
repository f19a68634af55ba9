// One rdma_cm_id with an event channel of its own, on one reactor. Private to vhca/ibv.
//
// A channel for each id costs a descriptor and makes an id's events its owner's alone: no table of
// ids, and moving to another reactor is watching the channel there. Events are copied and
// acknowledged at once, so that destroying an id never waits for anybody.
//
// Threads: the reactor given to start(); before that, whoever holds it.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "vhca/device.h"
#include "vhca/ibv/cq.h"
#include "vhca/ibv/library.h"

namespace braid::vhca::ibv {

/// What happened to an id. The private data is as the CM delivers it: padded with zeroes.
struct CmEvent {
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_ERROR;
  int status = 0;
  std::vector<std::byte> private_data;
  uint8_t responder_resources = 0;  // of connect requests and responses: what the peer would use
  uint8_t initiator_depth = 0;      // ... and what it offers
  rdma_cm_id* request = nullptr;    // of a connect request: the new id
};

class CmChannel {
 public:
  static base::Result<std::unique_ptr<CmChannel>> create(std::shared_ptr<const Library> library);
  ~CmChannel();
  CmChannel(const CmChannel&) = delete;
  CmChannel& operator=(const CmChannel&) = delete;

  /// A new id on this channel.
  base::Status make_id();
  /// Moves an id of another channel here.
  base::Status adopt(rdma_cm_id* id);
  /// Several ids may share a channel (listeners); this is the last one made.
  rdma_cm_id* id() { return ids_.back(); }
  rdma_event_channel* verbs() { return channel_; }
  void destroy_last_id();

  /// Watches for events on the reactor, on its thread.
  void start(base::Reactor& reactor);
  /// The next event. One waiter at a time; not with on_event().
  base::Task<CmEvent> next();
  /// From now on events go there, also those that wait. It may destroy the channel.
  void on_event(std::function<void(CmEvent)> sink);
  /// Takes what the kernel has without waiting; the oldest event that nobody took.
  std::optional<CmEvent> try_next();
  /// Takes what the kernel has and gives it to the sink or the waiter, as when it is readable. It
  /// may destroy the channel.
  void take_all();

 private:
  CmChannel(std::shared_ptr<const Library> library, rdma_event_channel* channel)
      : library_(std::move(library)), channel_(channel), handle_(channel->fd) {}
  static void readable(base::Watch& watch);
  bool fetch();
  void deliver();

  const std::shared_ptr<const Library> library_;
  rdma_event_channel* const channel_;
  const BorrowedHandle handle_;
  std::vector<rdma_cm_id*> ids_;
  base::Reactor* reactor_ = nullptr;
  base::Watch watch_;
  std::deque<CmEvent> events_;
  std::optional<base::Signal> arrived_;
  std::function<void(CmEvent)> sink_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

/// A socket address.
struct SocketAddress {
  sockaddr_storage storage{};
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  bool is_wildcard() const;
};
/// kInvalid for what is no IP address.
base::Result<SocketAddress> socket_address(const Address& address);
Address address_of(const sockaddr& address);
/// "10.0.0.1:1234", "[::1]:1234".
std::string text_of(const Address& address);

}  // namespace braid::vhca::ibv
