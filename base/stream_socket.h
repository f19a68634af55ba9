// Sockets between hosts: byte streams (TCP), never blocking.
//
// Two implementations: of LinuxHost (base/linux/stream_socket.h), and of SimHost
// (base/sim/stream.h), whose streams are cut into pieces, delayed and broken as a network does.
//
// Threads: one at a time per object. A socket is ready or not by IoQueue::watch_readable() and
// watch_writable() of its handle.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/host.h"
#include "base/result.h"

namespace braid::base {

/// An IP address as text, and a port.
struct SocketAddress {
  std::string ip;
  uint16_t port = 0;
};

/// A connection, or one that is being made. Closes on destruction: what was sent still goes out.
class StreamSocket {
 public:
  virtual ~StreamSocket() = default;
  /// Whether the connection stands: kWouldBlock while it is being made (it becomes writable then),
  /// kRefused when nobody listens there, kTimedOut when nobody answers. Ask until it says kOk.
  virtual Errc connected() = 0;
  /// Sends the first `sent` bytes of the pieces, at least one, or tells why not. kWouldBlock: wait
  /// until writable; kDisconnected: the peer is gone; kTimedOut: nothing was heard of it for the
  /// user time-out. No signal is raised.
  virtual Errc send(std::span<const iovec> pieces, size_t& sent) = 0;
  /// Receives at least one byte, filling the pieces in order, or tells why not. kWouldBlock: wait
  /// until readable; kDisconnected: the peer has closed, or is gone, and all it sent was received.
  virtual Errc receive(std::span<const iovec> pieces, size_t& received) = 0;
  /// The peer reads the end behind all that was sent. Nothing may be sent after.
  virtual void shut_down_send() = 0;
  /// Nothing is sent any more: what was sent before still goes out, the peer reads the end behind
  /// it. What has come can still be received, then the end; so the socket is readable, and who
  /// watches it wakes up.
  virtual void shut_down() = 0;
  /// How long the peer's machine may leave what was sent without an acknowledgement, and a silent
  /// connection's probes without an answer, before the connection counts as broken (kTimedOut). It
  /// also runs while the peer's process reads nothing and all windows are full. 0: no bound. Less
  /// than kUserTimeoutMinNs means that: a single lost segment or probe shall not count.
  virtual void set_user_timeout(uint64_t timeout_ns) = 0;
  static constexpr uint64_t kUserTimeoutMinNs = 3'500'000'000;
  virtual SocketAddress local() const = 0;
  virtual SocketAddress peer() const = 0;
  virtual const Handle& handle() const = 0;
};

class StreamListener {
 public:
  virtual ~StreamListener() = default;
  virtual Result<std::unique_ptr<StreamSocket>> accept() = 0;  // kWouldBlock when nobody waits
  virtual SocketAddress address() const = 0;  // with the port that was chosen if 0 was asked
  virtual const Handle& handle() const = 0;
};

}  // namespace braid::base
