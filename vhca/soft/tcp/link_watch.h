// LinkWatch: tells a port of the link of the interface that has its address, when the kernel does.
//
// Threads: the control reactor's, PortState apart.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/host.h"
#include "base/reactor.h"

namespace braid::vhca::soft::tcp {

/// A port is up if it is not made to be down, and has a link as far as is known. Threads: any.
class PortState {
 public:
  /// Runs when the port comes up or goes down, on the thread that makes it so, one at a time. Set
  /// once, before the port is used; what was told before is not told again.
  void on_change(std::function<void(bool up)> callback);
  void set_port(bool up) { set(port_, up); }
  void set_link(bool up) { set(link_, up); }

 private:
  void set(bool& what, bool up);

  std::mutex mutex_;  // guards all below
  bool port_ = true;
  bool link_ = true;
  std::function<void(bool)> on_change_;
};

class LinkWatch {
 public:
  /// From one look to the next at the least; so many times as long as the look took, if that is
  /// more. Each goes through all interfaces of the machine, and on one that starts containers by
  /// the hundred there is news without end.
  static constexpr uint64_t kLooksApartNs = 10 * base::kMillisecond;
  static constexpr uint64_t kRestForLook = 20;
  /// If the kernel could not be asked.
  static constexpr uint64_t kLookAgainNs = base::kSecond;

  /// Tells how it is at once, and from then on. Null where the host has no news of links (a
  /// warning tells, if it ought to): then only query_port knows. `port` outlives it.
  static std::unique_ptr<LinkWatch> create(base::Host& host, base::Reactor& reactor, std::string ip,
                                           PortState& port);
  ~LinkWatch();
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

 private:
  LinkWatch(base::Host& host, base::Reactor& reactor, std::string ip, PortState& port,
            std::unique_ptr<base::LinkNews> news);
  void hear();
  void look();

  base::Host& host_;
  base::Reactor& reactor_;
  const std::string ip_;
  PortState& port_;
  const std::unique_ptr<base::LinkNews> news_;
  base::Watch watch_;
  base::Timer next_look_;
  uint64_t rests_until_ns_ = 0;  // news that come before wait
};

}  // namespace braid::vhca::soft::tcp
