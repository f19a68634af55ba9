// One end of a connection: while it is made (PendingEnd) and once it stands (InHostConnection).
// Private to vhca/soft/inhost.
//
// Threads: the connection's reactor.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "vhca/soft/inhost/channel.h"
#include "vhca/soft/inhost/link.h"
#include "vhca/soft/inhost/wire.h"

namespace braid::vhca::soft::inhost {

/// Owns a channel's life: shuts it down, and ends the announcements to it.
class ChannelOwner {
 public:
  ChannelOwner(InHostWire& wire, base::Reactor& reactor, std::unique_ptr<base::LocalSocket> socket);
  ~ChannelOwner() { shut_down(); }
  ChannelOwner(ChannelOwner&&) = default;
  ChannelOwner& operator=(ChannelOwner&&) = delete;

  Channel& operator*() const { return *channel_; }
  Channel* operator->() const { return channel_.get(); }
  const std::shared_ptr<Channel>& shared() const { return channel_; }
  /// Idempotent.
  void shut_down();

 private:
  InHostWire& wire_;
  std::shared_ptr<Channel> channel_;
};

/// What goes behind announcements: a socket holds some hundreds of them, and there may be thousands
/// of segments. `channel` and what `send` has outlive the task. kTimedOut: the peer does not read.
base::Task<base::Status> send_when_read(base::Reactor& reactor, const Channel& channel,
                                        uint64_t deadline_ns, std::function<base::Status()> send);

/// What an end brings to the handshake.
class PendingEnd {
 public:
  /// `end` is in RESET or INIT and outlives this.
  static base::Result<std::unique_ptr<PendingEnd>> create(InHostWire& wire, LinkEnd& end,
                                                          const ConnectParameters& parameters);

  /// kRequest or kReply with our handles and the private data of the parameters.
  base::Status send(Channel& channel, CmKind kind);
  /// The peer told of itself: maps its segments, announces ours, moves the QP to RTS. `channel` and
  /// `peer` outlive the task. kTimedOut: the peer does not read of ours.
  base::Task<base::Status> establish(base::Reactor& reactor,
                                     const std::shared_ptr<Channel>& channel, Received& peer,
                                     uint64_t deadline_ns);

 private:
  PendingEnd(InHostWire& wire, LinkEnd& end, const ConnectParameters& parameters)
      : wire_(wire), end_(end), parameters_(parameters), info_(end.info()) {}
  base::Event* send_event() const;
  base::Result<LinkParts> make_parts(const std::shared_ptr<Channel>& channel, Received& peer);

  InHostWire& wire_;
  LinkEnd& end_;
  const ConnectParameters parameters_;
  const EndInfo info_;
  Geometry geometry_;
  std::unique_ptr<base::Segment> segment_;  // until establish() gives it to the link
  std::unique_ptr<base::Handle> segment_handle_;
};

class InHostConnection final : public Connection {
 public:
  InHostConnection(ChannelOwner channel, std::vector<std::byte> peer_private_data);
  ~InHostConnection() override { disconnect(); }

  std::span<const std::byte> peer_private_data() const override { return private_data_; }
  void disconnect() override;
  bool disconnected() const override { return disconnected_ || channel_->ended(); }
  void on_disconnect(std::function<void()> callback) override;
  std::string peer_text() const override;

 private:
  ChannelOwner channel_;
  const std::vector<std::byte> private_data_;
  bool disconnected_ = false;
};

/// "process 123 on this host"
std::string peer_text_of(const base::PeerIdentity& identity);

/// The end of a QP of this device; kInvalid if the QP is another device's.
base::Result<LinkEnd*> link_end_of(SoftDevice& device, Qp& qp);

}  // namespace braid::vhca::soft::inhost
