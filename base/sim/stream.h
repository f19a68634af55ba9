// Streams of SimHost: what the kernel's TCP does, over a channel of SimFabric.
//
// A channel's requests are the segments, its answers the acknowledgements of the machine (also of a
// stopped process), its retry budget the user time-out, which also runs while the window is full
// and the peer's process reads nothing. Sends and receives are cut at places drawn
// from the seed; a sender may be ahead of the reader by a window that is drawn for each connection.
//
//   initiator                        listener's machine
//   first message  ----------------> a socket for accept()
//   connected      <---- kAccepted
//   bytes          <---- kData ----> bytes
//   room to send   <---- kRead ----> the process has read so many
//                  <---- kEnd -----> nothing follows
//
// Threads: the world's only one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/sim/fabric.h"
#include "base/sim/io_queue.h"
#include "base/stream_socket.h"

namespace braid::base::sim {

/// What a handle refers to that can be readable and writable.
class SimSocketObject : public SimObject {
 public:
  const std::shared_ptr<EventState> readable = std::make_shared<EventState>(/*level=*/true);
  const std::shared_ptr<EventState> writable = std::make_shared<EventState>(/*level=*/true);
};

/// One end of a stream: shared by its socket and, until the peer has all, by the host.
class SimStream final : public SimSocketObject,
                        public ChannelHandler,
                        public std::enable_shared_from_this<SimStream> {
 public:
  explicit SimStream(SimHost& host);

  Status connect(const std::string& local_ip, const SocketAddress& peer);
  void accepted(std::unique_ptr<Channel> channel);
  /// The process has no socket any more. What was sent still goes out.
  static void close(std::shared_ptr<SimStream> stream);

  Errc connected() const;
  Errc send(std::span<const iovec> pieces, size_t& sent);
  Errc receive(std::span<const iovec> pieces, size_t& received);
  void shut_down_send();
  void shut_down();
  void set_user_timeout(uint64_t timeout_ns);
  SocketAddress local() const;
  SocketAddress peer() const { return peer_; }
  bool over() const { return channel_ == nullptr || failure_ != Errc::kOk; }
  bool drained() const { return over() || unanswered_ == 0; }

  // --- ChannelHandler
  void request(std::span<const std::byte> message, std::vector<std::byte>& answer) override;
  void answered(std::span<const std::byte> answer) override;
  void broken(Errc why) override;

 private:
  void transmit(std::vector<std::byte> message);
  size_t unread() const { return received_.size() - read_to_; }
  void update_readiness();
  void watch_window();
  uint64_t room() const { return ahead_ < window_ ? window_ - ahead_ : 0; }
  /// Once it has been full a part has to be free, as with kernels: else each byte that is read
  /// would be followed by a segment of one byte, with the headers of a large one.
  bool full() const { return room() < (was_full_ ? window_ / 4 : 1); }

  SimHost& host_;
  const uint64_t window_;  // bytes that may be ahead of the reader
  bool connected_ = false;
  bool send_ended_ = false;
  bool receive_ended_ = false;
  bool peer_ended_ = false;
  Errc failure_ = Errc::kOk;  // why nothing is carried any more
  uint64_t ahead_ = 0;        // sent and not read by the peer's process
  uint64_t told_read_ = 0;    // bytes that the peer said to have read
  uint64_t user_timeout_ns_ = kNever;
  bool was_full_ = false;            // and nothing has been taken since
  bool window_watched_ = false;      // an event looks whether a full window moves
  uint64_t unanswered_ = 0;          // requests
  uint64_t read_untold_ = 0;         // read here, and the peer does not know
  std::vector<std::byte> received_;  // from read_to_ on what the process has not read
  size_t read_to_ = 0;
  SocketAddress peer_;
  std::unique_ptr<Channel> channel_;  // last
};

class SimStreamSocket final : public StreamSocket {
 public:
  explicit SimStreamSocket(std::shared_ptr<SimStream> stream)
      : stream_(stream), handle_(std::move(stream)) {}
  ~SimStreamSocket() override { SimStream::close(stream_); }
  Errc connected() override { return stream_->connected(); }
  Errc send(std::span<const iovec> pieces, size_t& sent) override {
    return stream_->send(pieces, sent);
  }
  Errc receive(std::span<const iovec> pieces, size_t& received) override {
    return stream_->receive(pieces, received);
  }
  void shut_down_send() override { stream_->shut_down_send(); }
  void shut_down() override { stream_->shut_down(); }
  void set_user_timeout(uint64_t timeout_ns) override { stream_->set_user_timeout(timeout_ns); }
  SocketAddress local() const override { return stream_->local(); }
  SocketAddress peer() const override { return stream_->peer(); }
  const Handle& handle() const override { return handle_; }

 private:
  const std::shared_ptr<SimStream> stream_;
  const SimHandle handle_;
};

class SimStreamListener final : public StreamListener, public IncomingHandler {
 public:
  static Result<std::unique_ptr<StreamListener>> create(SimHost& host, const SocketAddress& address,
                                                        int backlog);
  Result<std::unique_ptr<StreamSocket>> accept() override;
  SocketAddress address() const override;
  const Handle& handle() const override { return handle_; }
  void incoming(std::unique_ptr<Channel> channel, std::span<const std::byte> message) override;

 private:
  SimStreamListener(SimHost& host, size_t backlog)
      : host_(host),
        backlog_(backlog),
        object_(std::make_shared<SimSocketObject>()),
        handle_(object_) {}

  SimHost& host_;
  const size_t backlog_;
  const std::shared_ptr<SimSocketObject> object_;
  const SimHandle handle_;
  std::deque<std::shared_ptr<SimStream>> waiting_;
  std::unique_ptr<FabricListener> listener_;  // last
};

/// Tells who watches.
void set_ready(SimHost& host, EventState& state, bool ready);

}  // namespace braid::base::sim
