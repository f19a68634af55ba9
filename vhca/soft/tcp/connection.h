// The connection manager's objects over TcpEnds. Private to vhca/soft/tcp.
//
// Threads: the connection's reactor; a request moves to the reactor that accepts it.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/limited_log.h"
#include "base/reactor.h"
#include "base/stream_socket.h"
#include "vhca/soft/candidates.h"
#include "vhca/soft/request_queue.h"
#include "vhca/soft/tcp/end.h"
#include "vhca/soft/tcp/wire.h"

namespace braid::vhca::soft::tcp {

/// Waits in a task for a socket to be readable or writable.
class SocketWait {
 public:
  SocketWait(base::Reactor& reactor, const base::Handle& handle, bool write);
  SocketWait(const SocketWait&) = delete;
  SocketWait& operator=(const SocketWait&) = delete;
  ~SocketWait() { reactor_.io().unwatch(watch_); }
  /// Until it was ready since the last time.
  base::Task<void> ready();

 private:
  base::Reactor& reactor_;
  base::Watch watch_;
  bool ready_ = false;
  base::Signal changed_;
};

/// Reads one frame of the connection manager and not a byte more.
class CmReader {
 public:
  /// kWouldBlock: not all has come.
  base::Result<Cm> read(base::StreamSocket& socket);

 private:
  std::byte bytes_[sizeof(FrameHeader) + kCmBytesMax];
  size_t filled_ = 0;
  size_t wanted_ = sizeof(FrameHeader);
};

/// All of the frame, or an error: there is always room in a socket that has carried nothing.
base::Status send_cm(base::StreamSocket& socket, std::span<const std::byte> frame);
/// kInvalid: parameters beyond their bounds, a QP that is not in RESET or INIT.
base::Status check_connect(const SoftQp& qp, const ConnectParameters& parameters,
                           size_t private_max);

class TcpConnection final : public Connection {
 public:
  TcpConnection(std::shared_ptr<TcpEnd> end, std::vector<std::byte> private_data)
      : end_(std::move(end)), private_data_(std::move(private_data)) {}
  ~TcpConnection() override { end_->disconnect(); }

  std::span<const std::byte> peer_private_data() const override { return private_data_; }
  void disconnect() override { end_->disconnect(); }
  bool disconnected() const override { return end_->phase() == TcpEnd::Phase::kOver; }
  void on_disconnect(std::function<void()> callback) override;
  std::string peer_text() const override { return end_->peer_text(); }

 private:
  const std::shared_ptr<TcpEnd> end_;
  const std::vector<std::byte> private_data_;
};

class TcpRequest final : public ConnectRequest {
 public:
  TcpRequest(TcpWire& wire, SoftDevice& device, std::unique_ptr<base::StreamSocket> socket, Cm cm);
  ~TcpRequest() override { reject({}); }

  std::span<const std::byte> private_data() const override { return cm_.private_data; }
  std::string peer_text() const override { return peer_text_; }
  base::Task<base::Result<std::unique_ptr<Connection>>> accept(
      base::Reactor& reactor, Qp& qp, ConnectParameters parameters) override;
  void reject(std::span<const std::byte> private_data) override;

 private:
  TcpWire& wire_;
  SoftDevice& device_;
  std::unique_ptr<base::StreamSocket> socket_;  // null: decided
  const Cm cm_;
  const std::string peer_text_;
};

class TcpListener final : public Listener {
 public:
  /// `requests`: where they wait; `backlog` bounds all that wait there.
  TcpListener(TcpWire& wire, SoftDevice& device, base::Reactor& reactor,
              std::unique_ptr<base::StreamListener> listener, int backlog,
              std::shared_ptr<RequestQueue> requests);
  ~TcpListener() override;

  base::Task<base::Result<std::unique_ptr<ConnectRequest>>> next() override;
  Address address() const override;

 private:
  /// A peer that has connected and has not sent its request yet.
  struct Candidate {
    Candidate(TcpListener& owner, std::unique_ptr<base::StreamSocket> s);
    ~Candidate();
    TcpListener& listener;
    std::unique_ptr<base::StreamSocket> socket;
    const std::string origin;  // its address
    CmReader reader;
    base::Watch watch;
    base::Timer timer;
    std::list<std::unique_ptr<Candidate>>::iterator self;
  };
  static void somebody_connects(base::Watch& watch);
  static void candidate_speaks(base::Watch& watch);
  static void candidate_is_late(base::Timer& timer);
  static void pause_over(base::Timer& timer);
  void watch_socket(bool watched);
  void accept_sockets();
  void take_request(Candidate& candidate);
  void reject(base::StreamSocket& socket, RejectReason reason);

  TcpWire& wire_;
  SoftDevice& device_;
  base::Reactor& reactor_;
  const std::unique_ptr<base::StreamListener> listener_;
  const size_t backlog_;
  base::Watch watch_;
  bool watched_ = false;
  base::Timer pause_;  // after a failed accept, or many
  Candidates<Candidate> candidates_;
  base::LimitedLog refusals_;  // of who is no peer
  base::LimitedLog failures_;  // to accept
  const std::shared_ptr<RequestQueue> requests_;
};

/// The QP as the wire uses it; kInvalid if it is another device's.
base::Result<SoftQp*> qp_of(SoftDevice& device, Qp& qp);

}  // namespace braid::vhca::soft::tcp
