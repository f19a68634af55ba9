// Where NBD clients come in: listening sockets, and the handshakes that are under way. Who gets an
// export goes on to that export's server.
//
// Bounded: clients in the handshake (the oldest goes for the newest), each one's time and memory
// (NbdHandshake), accepts per turn. All sockets are watched by one epoll descriptor.
//
// Threads: the reactor's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/intrusive_list.h"
#include "base/limited_log.h"
#include "base/reactor.h"
#include "base/stream_socket.h"
#include "base/timer.h"
#include "bnbd/frontend/fd_handle.h"
#include "bnbd/frontend/nbd_handshake.h"
#include "bnbd/frontend/unix_listener.h"
#include "bnbd/nbd_service.h"

namespace braid::bnbd {

class NbdDoor {
 public:
  /// A client that has an export: its socket, ready for the transmission.
  using Granted = std::function<void(const std::string& export_name, UniqueFd socket,
                                     bool structured, std::vector<std::byte> early)>;
  /// Errors: those of NbdService::create().
  static base::Result<std::unique_ptr<NbdDoor>> open(base::Reactor& reactor,
                                                     NbdServiceOptions options,
                                                     NbdHandshake::Offers offers, Granted granted);
  ~NbdDoor();
  NbdDoor(const NbdDoor&) = delete;
  NbdDoor& operator=(const NbdDoor&) = delete;

  const std::string& unix_path() const { return options_.unix_path; }
  /// With the ports that were chosen.
  std::vector<base::SocketAddress> addresses() const;
  const NbdServiceStatus& status() const { return status_; }

 private:
  struct Candidate : base::ListNode {
    Candidate(UniqueFd taken, const NbdHandshake::Offers& offers, base::Timer::Callback too_slow,
              NbdDoor& of)
        : socket(std::move(taken)), handshake(offers), door(of), patience(too_slow, this) {}
    UniqueFd socket;
    NbdHandshake handshake;
    NbdDoor& door;
    base::Timer patience;
  };

  NbdDoor(base::Reactor& reactor, NbdServiceOptions options, NbdHandshake::Offers offers,
          Granted granted, UniqueFd epoll_fd);
  base::Status listen();
  base::Status watch_listener(int fd);
  void look();
  void accept_from(int listener);
  void pause_accepting();
  void take(UniqueFd socket);
  void advance(Candidate& candidate);
  bool send(Candidate& candidate);
  bool receive(Candidate& candidate);
  void wait_for(Candidate& candidate, uint32_t events);
  void dismiss(Candidate& candidate, const std::string& why);
  static void too_slow(base::Timer& timer);
  static void accept_again(base::Timer& timer);

  base::Reactor& reactor_;
  const NbdServiceOptions options_;
  const NbdHandshake::Offers offers_;
  const Granted granted_;
  base::LimitedLog log_;
  FdHandle epoll_;
  base::Watch watch_;
  std::unique_ptr<UnixListener> unix_;
  std::vector<std::unique_ptr<base::StreamListener>> tcp_;
  base::Timer accept_timer_;
  base::IntrusiveList<Candidate> candidates_;  // the oldest first; owned
  NbdServiceStatus status_;
};

}  // namespace braid::bnbd
