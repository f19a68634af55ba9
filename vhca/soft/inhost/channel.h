// Channel: the socket of one connection, from the first message until either side is gone.
//
// It brings the handshake, the peer's announcements of segments, and the news that the peer
// disconnected or died (hang-up).
//
// Threads: made, started and shut down on its reactor. send(), read_announcements() and fail() from
// any thread. Shared by the connection (which shuts it down) and the link.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "vhca/soft/inhost/cm_messages.h"
#include "vhca/soft/inhost/peer_device.h"

namespace braid::vhca::soft::inhost {

/// A message with what came along.
struct Received {
  CmMessage message;
  std::vector<std::unique_ptr<base::Handle>> handles;
};

/// How many messages of one channel are read at once: a peer may write without end. The rest is
/// read in the next turn, for which the socket stays readable.
inline constexpr int kMessagesPerTurn = 32;

/// One message from a socket; kWouldBlock, kDisconnected, kProtocol.
base::Result<Received> receive_cm_message(base::LocalSocket& socket);

/// Who is told of the end of the connection: the link.
class ChannelUser {
 public:
  virtual ~ChannelUser() = default;
  /// The peer is gone. On the channel's reactor.
  virtual void peer_gone() = 0;
  /// This side disconnects: the QP goes to ERR. On the channel's reactor.
  virtual void disconnect() = 0;
};

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  Channel(base::Reactor& reactor, std::unique_ptr<base::LocalSocket> socket);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  base::Reactor& reactor() { return reactor_; }
  const base::PeerIdentity& identity() const { return identity_; }

  /// Begins to read.
  void start();
  /// Ends everything; tells the peer that it was in order. Idempotent. The user hears nothing.
  void shut_down();

  /// kRequest, kReply, kReject. kDisconnected if the peer is gone first.
  base::Task<base::Result<Received>> handshake_message();
  /// kReady. As above.
  base::Task<base::Status> ready();

  /// From now on announcements go to this device; those that came before follow now.
  base::Status attach(std::shared_ptr<PeerDevice> peer);
  void set_user(ChannelUser* user);
  /// When this returns the user is not called any more (a call of it may be under way if this is
  /// called from inside it).
  void forget_user();
  /// Has the user move its QP to ERR, if there still is one.
  void disconnect_user();

  base::Status send(const CmMessage& message, std::span<const base::Handle* const> handles = {});
  /// Reads what the socket holds, so that a segment that was announced is known. False: only a part
  /// of it, kMessagesPerTurn.
  bool read_announcements();
  /// Ends the connection because of what the peer did. The rest happens on the reactor.
  void fail(const std::string& reason);

  /// True once the peer disconnected, died or failed.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  /// Runs once, when the peer ends; at once if it has.
  void on_end(std::function<void()> callback);

 private:
  static void readable(base::Watch& watch);
  bool read_locked();
  base::Status take_locked(Received received);
  base::Status announcement_locked(Received& received);
  void end_locked(const std::string& reason);
  void settle();

  base::Reactor& reactor_;
  const base::PeerIdentity identity_;
  base::Watch watch_;
  base::Signal changed_;
  bool watching_ = false;
  bool settled_ = false;  // the end was told to everybody
  std::function<void()> end_callback_;
  std::atomic<bool> ended_{false};

  std::mutex socket_mutex_;  // guards all down to the next mutex
  std::unique_ptr<base::LocalSocket> socket_;
  std::shared_ptr<PeerDevice> peer_;
  std::vector<Received> early_;  // announcements before attach()
  std::optional<Received> handshake_;
  bool ready_ = false;
  bool in_order_ = false;  // the peer said that it disconnects
  std::string end_reason_;

  std::recursive_mutex user_mutex_;  // held while the user is called; before the QP's lock
  ChannelUser* user_ = nullptr;
};

}  // namespace braid::vhca::soft::inhost
