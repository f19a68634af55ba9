// The pieces of SimFabric: ports and paths with their faults, the book of listeners and channel
// ends. See fabric.h for what it means, channel.h for the transport.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/sim/fabric.h"
#include "base/sim/rooms.h"

namespace braid::base::sim {

class ChannelEnd;
class FabricImpl;

struct FabricPort {
  std::string ip;
  SimMachine* machine = nullptr;
  size_t index = 0;  // among those of the world
  bool up = true;
  std::vector<std::weak_ptr<std::function<void(bool)>>> watchers;
  uint64_t hits = 0;  // messages lost because it was down
  bool reachable() const;
};

class FabricListenerImpl final : public FabricListener {
 public:
  FabricListenerImpl(FabricImpl& fabric, SimHost& process, FabricAddress address,
                     IncomingHandler& handler)
      : process(process), handler(handler), fabric_(fabric), address_(std::move(address)) {}
  ~FabricListenerImpl() override;
  FabricAddress address() const override { return address_; }

  SimHost& process;
  IncomingHandler& handler;

 private:
  FabricImpl& fabric_;
  const FabricAddress address_;
};

class FabricImpl final : public SimFabric {
 public:
  explicit FabricImpl(SimWorld& world) : world_(world) {}

  Result<std::unique_ptr<FabricListener>> listen(SimHost& process, const FabricAddress& address,
                                                 IncomingHandler& handler) override;
  Result<std::unique_ptr<Channel>> connect(SimHost& process, const std::string& local_ip,
                                           const FabricAddress& peer, RetryBudget budget,
                                           ChannelHandler& handler,
                                           std::vector<std::byte> first_message) override;
  std::vector<std::string> ports_of(const SimHost& process) const override;
  bool port_up(const std::string& ip) const override { return port(ip).reachable(); }
  std::shared_ptr<void> watch_port(const std::string& ip,
                                   std::function<void(bool up)> callback) override;

  void add_port(SimMachine& machine, const std::string& ip) override;
  void set_port_up(const std::string& ip, bool up) override;
  void set_black_hole(const std::string& from_ip, const std::string& to_ip, bool on) override;
  void set_lose_answers(const std::string& from_ip, const std::string& to_ip, bool on) override;
  void set_extra_delay(const std::string& from_ip, const std::string& to_ip,
                       uint64_t max_ns) override;
  void set_rate(const std::string& from_ip, const std::string& to_ip,
                uint64_t bytes_per_ms) override;
  void set_held_until(const std::string& from_ip, const std::string& to_ip,
                      uint64_t until_ns) override;
  void set_receive_missing(const std::string& from_ip, const std::string& to_ip, bool on) override;
  void heal_all() override;
  const FabricFaults& faults() const override { return faults_; }
  uint64_t path_hits(const std::string& from_ip, const std::string& to_ip) override {
    return path(from_ip, to_ip).hits;
  }
  uint64_t port_hits(const std::string& ip) const override { return port(ip).hits; }
  uint64_t last_heard_ns(const std::string& at_ip, const std::string& from_ip) const override;
  std::vector<std::string> open_ends() const override;
  void set_connect_hook(std::function<void(const FabricAddress&)> hook) override {
    connect_hook_ = std::move(hook);
  }

  // --- for channel ends
  SimWorld& world() { return world_; }
  MessageRooms& rooms() { return *rooms_; }
  FabricFaults& count() { return faults_; }
  /// When something sent now from one port reaches the other; nothing if it is lost on the way.
  std::optional<uint64_t> carry(FabricPort& from, FabricPort& to, size_t size_bytes);
  /// The answer to a request that went from -> to is lost by a fault of its own.
  bool loses_answer(const FabricPort& from, const FabricPort& to);
  /// What goes from -> to finds no receive, by a fault of its own.
  bool misses_receive(const FabricPort& from, const FabricPort& to);
  FabricListenerImpl* find_listener(const FabricPort& port, uint16_t number);
  FabricPort* find_port(const std::string& ip);
  void enter(ChannelEnd& end);
  void leave(ChannelEnd& end);
  void remove_listener(FabricListenerImpl& listener);
  void process_died(SimHost& process, bool silent);
  void connected(const FabricAddress& listener) {
    if (connect_hook_) connect_hook_(listener);
  }

 private:
  struct PathFaults {
    bool black_hole = false;
    bool lose_answers = false;
    bool receive_missing = false;
    uint64_t extra_delay_max_ns = 0;
    uint64_t held_until_ns = 0;
    uint64_t bytes_per_ms = 0;
    uint64_t busy_until_ns = 0;  // with a rate: when all is through that was sent before
    uint64_t hits = 0;
  };
  const FabricPort& port(const std::string& ip) const;
  PathFaults& path(const std::string& from_ip, const std::string& to_ip);
  PathFaults* find_path(const FabricPort& from, const FabricPort& to) {
    if (from.index >= paths_.size() || to.index >= paths_[from.index].size()) return nullptr;
    return paths_[from.index][to.index].get();
  }
  FabricPort* first_port(const SimHost& process);
  static void set_up(FabricPort& port, bool up);

  SimWorld& world_;
  const std::shared_ptr<MessageRooms> rooms_ = std::make_shared<MessageRooms>();
  FabricFaults faults_;
  std::function<void(const FabricAddress&)> connect_hook_;
  std::vector<std::unique_ptr<FabricPort>> ports_;
  /// By the ports' indices, from and to; only those that had a fault once.
  std::vector<std::vector<std::unique_ptr<PathFaults>>> paths_;
  std::vector<FabricListenerImpl*> listeners_;
  std::map<uint32_t, ChannelEnd*> ends_;  // by subject: all that a process still holds
  uint16_t next_port_number_ = 49152;
};

std::unique_ptr<SimFabric> make_fabric(SimWorld& world);
/// The process is dead: nothing is delivered to it or sent by it any more; its peers are told
/// unless `silent`.
void process_died(SimFabric& fabric, SimHost& process, bool silent);

}  // namespace braid::base::sim
