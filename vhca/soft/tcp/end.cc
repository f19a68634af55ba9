#include "vhca/soft/tcp/end.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid::vhca::soft::tcp {

using base::Errc;
using base::Status;

namespace {

/// Between looks whether the owner of a socket that is not watched still polls.
constexpr uint64_t kLookNs = 2 * base::kMillisecond;
/// For the owner to answer by itself what the reactor received for it.
constexpr uint64_t kAcknowledgeNs = 100 * base::kMicrosecond;
/// Between looks at faults of ports: for what is delayed, or waits for too long.
constexpr uint64_t kPortsNs = 500 * base::kMicrosecond;
/// Between looks at a word that somebody else is at: he needs a few microseconds, unless he was
/// stopped.
constexpr uint64_t kWordMinNs = 50 * base::kMicrosecond;
constexpr uint64_t kWordMaxNs = 20 * base::kMillisecond;
/// For the socket to take the farewell of a connection that ends in order.
constexpr uint64_t kLingerNs = 5 * base::kSecond;

/// The QP's way to its end.
class TcpLink final : public Link {
 public:
  explicit TcpLink(std::shared_ptr<TcpEnd> end)
      : Link(LinkFamily::kStream), end_(std::move(end)), stream_(end_->stream()) {}
  ~TcpLink() override { end_->forget_qp(); }

  Execution execute(const Request& request) override { return stream_.execute(request); }
  void flush(LockedEnd& end) override { stream_.flush(end); }
  void progress(LockedEnd& end, bool woken) override { stream_.run(&end, woken); }
  void hang_up() override { stream_.hang_up(); }
  uint64_t arrived_bytes() const override { return stream_.arrived_bytes(); }
  void share_wire_budget(std::shared_ptr<WireBudget> budget) override {
    stream_.share_budget(std::move(budget));
  }
  Next next_arrival(Arrival&) override { return Next::kNone; }
  void pop_arrival() override {}
  void receive_posted(uint32_t, bool, std::span<const uint32_t>) override {}
  void arm(bool armed, bool) override {
    if (armed) stream_.sleep();
  }
  void qp_changed(uint32_t, uint8_t) override {}
  void retries_changed(uint8_t ack_timeout, uint8_t retry_count) override {
    end_->set_retries(retry_ns(ack_timeout, retry_count));
  }
  bool close() override {
    stream_.close();
    return true;
  }

 private:
  const std::shared_ptr<TcpEnd> end_;
  TcpStream& stream_;
};

std::string text_of(const base::SocketAddress& address) {
  return fmt::format("{}:{}", address.ip, address.port);
}

}  // namespace

TcpEnd::TcpEnd(base::Host& host, base::Reactor& reactor, std::unique_ptr<base::StreamSocket> socket,
               std::shared_ptr<Activity> activity, const TcpStream::Options& options)
    : reactor_(reactor),
      socket_(std::move(socket)),
      peer_text_(text_of(socket_->peer())),
      changed_(reactor),
      look_(&TcpEnd::look, this),
      acknowledge_(&TcpEnd::acknowledge_due, this),
      word_(&TcpEnd::look_at_word, this),
      word_wait_ns_(kWordMinNs),
      ports_(&TcpEnd::look_at_ports, this),
      port_(options.port),
      stream_(host, *socket_, *this, std::move(activity), options) {
  for (Direction* each : {&read_, &write_}) {
    each->watch.ready = &TcpEnd::ready;
    each->watch.context = this;
  }
  write_.write = true;
}

TcpEnd::~TcpEnd() {
  if (port_ != nullptr) port_->leave(*this);
}

Status TcpEnd::establish(LinkEnd& qp, uint32_t peer_qp_number, const ConnectParameters& parameters,
                         bool initiator) {
  socket_->set_user_timeout(retry_ns(parameters));
  {
    const std::lock_guard guard(mutex_);
    qp_ = &qp;
  }
  auto link = std::make_unique<TcpLink>(shared_from_this());
  Status done = qp.establish(std::move(link), peer_qp_number, parameters);
  if (done.ok() && initiator) {
    phase_ = Phase::kEstablished;
    done = qp.start_sending();
    if (done.ok()) qp.move();  // tells the peer
  }
  if (done.ok()) want_read();
  if (done.ok() && port_ != nullptr) {
    port_->join(*this);
    if (port_->trouble() != 0) port_changed();
  }
  return done;
}

void TcpEnd::set_retries(uint64_t retry_ns) {
  stream_.set_retry_ns(retry_ns);
  socket_->set_user_timeout(retry_ns);
}

base::Task<bool> TcpEnd::decided() {
  const std::shared_ptr<TcpEnd> self = shared_from_this();
  while (phase_ == Phase::kDeciding) co_await changed_.wait();
  co_return phase_ == Phase::kEstablished;
}

void TcpEnd::disconnect() {
  on_over_ = nullptr;
  const bool first = phase_ != Phase::kOver;
  {
    const std::lock_guard guard(mutex_);
    if (qp_ != nullptr) {
      qp_->disconnected();
    } else {
      stream_.hang_up();
    }
  }
  unwatch(read_);
  if (!lingering_) unwatch(write_);
  for (base::Timer* each : {&look_, &acknowledge_, &word_, &ports_}) {
    if (each->pending()) reactor_.cancel(*each);
  }
  why_ = first ? Errc::kDisconnected : why_;
  if (first) set_phase(Phase::kOver);
  if (!stream_.unsent() || std::exchange(lingering_, true)) return;
  reactor_.spawn(linger(shared_from_this()));
}

/// Until the socket has taken the farewell, or for some time.
base::Task<void> TcpEnd::linger(std::shared_ptr<TcpEnd> self) {
  struct Unwatch {
    explicit Unwatch(TcpEnd& end) : of(end) {}
    ~Unwatch() { of.unwatch(of.write_); }
    TcpEnd& of;
  };
  const Unwatch unwatch_at_the_end(*self);
  self->want_write();
  base::Task<bool> sending = self->farewell_sent();
  (void)co_await self->reactor_.with_timeout(std::move(sending), kLingerNs);
  self->lingering_ = false;
}

base::Task<bool> TcpEnd::farewell_sent() {
  while (stream_.unsent()) co_await changed_.wait();
  co_return true;
}

void TcpEnd::forget_qp() {
  const std::lock_guard guard(mutex_);
  qp_ = nullptr;
  stream_.leave();
}

void TcpEnd::set_phase(Phase phase) {
  phase_ = phase;
  changed_.notify_all();
  reactor_.wake();
}

// --- driving

void TcpEnd::run() {
  const std::shared_ptr<TcpEnd> self = shared_from_this();
  const std::lock_guard guard(mutex_);
  if (qp_ != nullptr) {
    qp_->move();
  } else {
    stream_.run(nullptr, /*woken=*/true);
  }
}

void TcpEnd::ready(base::Watch& watch) {
  auto& end = *static_cast<TcpEnd*>(watch.context);
  const std::shared_ptr<TcpEnd> self = end.shared_from_this();
  Direction& direction = &watch == &end.write_.watch ? end.write_ : end.read_;
  end.unwatch(direction);
  end.run();
  if (end.lingering_ && !end.stream_.unsent()) end.changed_.notify_all();
  if (end.phase_ == Phase::kOver) return;
  if (end.stream_.hot() && !direction.write) end.polls_at_look_ = end.stream_.polls();
  end.watch_again();
}

/// After a run(). Stuck, what is there to be read stays there: run() asked to be called when there
/// is room.
void TcpEnd::watch_again() {
  if (stream_.hot()) {
    if (!look_.pending()) reactor_.schedule_after(look_, kLookNs);
    return;
  }
  if (!stream_.stuck() && !stream_.deaf() && !stream_.waits_for_turn()) want_read();
}

void TcpEnd::look(base::Timer& timer) {
  auto& end = *static_cast<TcpEnd*>(timer.context);
  if (end.phase_ == Phase::kOver) return;
  const uint32_t polls = end.stream_.polls();
  const bool polled = polls != std::exchange(end.polls_at_look_, polls);
  if (polled && end.stream_.hot()) return end.reactor_.schedule_after(end.look_, kLookNs);
  end.stop_polling();
}

/// Nobody polls any more: from now on the reactor does it.
void TcpEnd::stop_polling() {
  stream_.cool();
  stream_.acknowledgement_due();
  run();
  if (phase_ != Phase::kOver && !stream_.waits_for_turn()) want_read();
}

/// The owner's thread is the reactor's.
void TcpEnd::may_receive() {
  const std::shared_ptr<TcpEnd> self = shared_from_this();
  if (phase_ == Phase::kOver) return;
  run();
  if (phase_ != Phase::kOver) watch_again();
}

void TcpEnd::acknowledge_later() {
  if (!acknowledge_.pending()) reactor_.schedule_after(acknowledge_, kAcknowledgeNs);
}

void TcpEnd::acknowledge_due(base::Timer& timer) {
  auto& end = *static_cast<TcpEnd*>(timer.context);
  if (end.phase_ == Phase::kOver) return;
  end.stream_.acknowledgement_due();
  end.run();
}

// --- faults of ports

/// Under the port's mutex, which the end's destructor takes, too: the last reference must not go
/// here.
void TcpEnd::port_changed() {
  stream_.port_changed();
  std::shared_ptr<TcpEnd> self = weak_from_this().lock();
  if (self == nullptr) return;  // about to leave the port
  reactor_.post([self = std::move(self)] { look_at_ports(self->ports_); });
}

/// The peer's words bring this about: one message at a time, which receives nothing.
void TcpEnd::ports_changed() {
  if (ports_due_.exchange(true, std::memory_order_seq_cst)) return;
  reactor_.post([self = shared_from_this()] {
    self->ports_due_.store(false, std::memory_order_seq_cst);
    if (self->phase_ != Phase::kOver) self->schedule_ports();
  });
}

void TcpEnd::schedule_ports() {
  if (stream_.looks_at_ports() && !ports_.pending()) reactor_.schedule_after(ports_, kPortsNs);
}

void TcpEnd::look_at_ports(base::Timer& timer) {
  auto& end = *static_cast<TcpEnd*>(timer.context);
  if (end.phase_ == Phase::kOver) return;
  end.run();
  if (end.phase_ == Phase::kOver) return;
  end.watch_again();
  end.schedule_ports();
}

// --- words that others are at

void TcpEnd::word_is_claimed() {
  if (word_due_.exchange(true, std::memory_order_seq_cst)) return;
  reactor_.post([self = shared_from_this()] {
    if (self->phase_ == Phase::kOver) return;
    self->reactor_.schedule_after(self->word_, self->word_wait_ns_);
  });
}

/// The socket was not watched meanwhile. What the stream is found to wait for is not asked: the
/// owner may be in the middle of a look beside us. Who finds the word claimed after the flag went
/// down, he or our run(), tells, and we come back.
void TcpEnd::look_at_word(base::Timer& timer) {
  auto& end = *static_cast<TcpEnd*>(timer.context);
  if (end.phase_ == Phase::kOver) return;
  end.word_due_.store(false, std::memory_order_seq_cst);
  end.run();
  if (end.phase_ == Phase::kOver) return;
  if (end.word_due_.load(std::memory_order_seq_cst)) {
    end.word_wait_ns_ = std::min(2 * end.word_wait_ns_, kWordMaxNs);
    return;
  }
  end.word_wait_ns_ = kWordMinNs;
  end.watch_again();
}

void TcpEnd::watch_later(Direction& direction) {
  if (direction.wanted.exchange(true, std::memory_order_acq_rel)) return;
  const bool here = std::this_thread::get_id() == thread_;  // lint: allow(os) see the member
  if (here) return watch_now(direction);
  reactor_.post([self = shared_from_this(), &direction] { self->watch_now(direction); });
}

void TcpEnd::watch_now(Direction& direction) {
  if (direction.watched || (phase_ == Phase::kOver && !(lingering_ && direction.write))) return;
  direction.watched = true;
  if (direction.write) {
    reactor_.io().watch_writable(socket_->handle(), direction.watch);
  } else {
    reactor_.io().watch_readable(socket_->handle(), direction.watch);
  }
}

void TcpEnd::unwatch(Direction& direction) {
  if (direction.watched) reactor_.io().unwatch(direction.watch);
  direction.watched = false;
  direction.wanted.store(false, std::memory_order_release);
}

// --- what the stream tells

void TcpEnd::peer_ready() {
  reactor_.post([self = shared_from_this()] {
    if (self->phase_ == Phase::kDeciding) self->set_phase(Phase::kEstablished);
  });
}

void TcpEnd::over(Errc why) {
  reactor_.post([self = shared_from_this(), why] { self->end(why); });
}

void TcpEnd::end(Errc why) {
  if (phase_ == Phase::kOver) return;
  why_ = why;
  set_phase(Phase::kOver);
  unwatch(read_);
  unwatch(write_);
  if (on_over_ == nullptr) return;
  const std::function<void()> callback = std::exchange(on_over_, nullptr);
  callback();
}

}  // namespace braid::vhca::soft::tcp
