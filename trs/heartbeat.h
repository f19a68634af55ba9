// Heartbeat: is the peer's thread behind a connection alive? The judgement (Heartbeat, pure) and
// what drives it (HeartbeatDriver, a timer on the connection's reactor). Both sides run one for
// each connection, towards a kernel peer one for connection 0 only (docs/trs.md).
//
// Anything received from the peer is a sign of life, so a busy connection sends no heartbeats. A
// check in which nothing new had come is a miss; the first miss asks (HB_MSG) and each further one
// only counts, since the connection is reliable and one question under way is enough. Part of a
// long message is a sign of life too; each other check that sees one sends a heartbeat, since the
// peer's own question would wait behind that message, and it has to hear of us. Detection takes at
// most interval * (missed_max + 1), and never less than two checks that are apart in time.
#pragma once

#include <cstdint>
#include <optional>

#include "base/reactor.h"
#include "trs/client.h"

namespace braid::trs {

class Heartbeat {
 public:
  enum class Verdict : uint8_t { kAlive, kAsk, kSilent };

  Heartbeat(const HeartbeatOptions& options, uint64_t now_ns)
      : options_(options), last_check_ns_(now_ns) {}

  /// One check. `received` counts the messages that have come from the peer since ever, `bytes`
  /// what has come of one that is not complete, as far as the device can tell; `lateness_ns` is how
  /// late this reactor itself was: if it was, the peer's answer may lie unseen, and the check is
  /// void.
  Verdict check(uint64_t now_ns, uint64_t received, uint64_t bytes, uint64_t lateness_ns);
  unsigned missed() const { return missed_; }

 private:
  const HeartbeatOptions options_;
  uint64_t last_check_ns_;
  uint64_t last_received_ = 0;
  uint64_t last_bytes_ = 0;
  unsigned missed_ = 0;
  unsigned parts_ = 0;  // checks that saw part of a message only
};

/// What a heartbeat needs of its connection. Nothing here stops the driver, but peer_silent() may.
class HeartbeatOwner {
 public:
  virtual ~HeartbeatOwner() = default;
  /// Takes what has arrived, and counts what has come since ever.
  virtual uint64_t listen() = 0;
  /// Bytes of messages under way, since ever; see Heartbeat::check().
  virtual uint64_t arrived_bytes() = 0;
  virtual void send_heartbeat() = 0;
  virtual void peer_silent(uint64_t silent_ns) = 0;
};

class HeartbeatDriver {
 public:
  HeartbeatDriver(base::Reactor& reactor, const HeartbeatOptions& options, HeartbeatOwner& owner)
      : reactor_(reactor), options_(options), owner_(owner), timer_(&tick, this) {}
  void start();
  void stop();

 private:
  static void tick(base::Timer& timer);
  base::Reactor& reactor_;
  const HeartbeatOptions options_;
  HeartbeatOwner& owner_;
  base::Timer timer_;
  std::optional<Heartbeat> heartbeat_;
};

}  // namespace braid::trs
