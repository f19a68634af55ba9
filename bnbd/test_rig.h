// For tests of client and server together: an export server and clients as simulated processes,
// with a network and disks between them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bnbd/remote.h"
#include "bnbd/server.h"
#include "bnbd/test_block.h"
#include "vhca/soft_device.h"

namespace braid::bnbd::test {

inline constexpr const char* kServerIp = "10.0.0.1";
inline constexpr uint16_t kPort = 1234;

/// What a node's devices are.
struct NodeDevices {
  uint32_t registrations_max = vhca::SimDeviceOptions{}.registrations_max;
  bool tcp = false;  // the TCP wire over simulated streams
};

/// A process with reactors and a device on one port.
class Node : public base::sim::SimProgram {
 public:
  Node(base::sim::SimHost& process, const std::string& ip, size_t reactor_count,
       const NodeDevices& its_devices = {})
      : host(process), devices_are(its_devices) {
    for (size_t i = 0; i < reactor_count; ++i) {
      reactors.push_back(std::move(base::Reactor::create(host, {})).value());
      host.drive(*reactors.back());
    }
    device = make_device(ip);
  }
  std::unique_ptr<vhca::Device> make_device(const std::string& ip) {
    if (devices_are.tcp) {
      return std::move(vhca::create_tcp_device(host, home(), {.name = "tcp " + ip, .ip = ip}))
          .value();
    }
    vhca::SimDeviceOptions options;
    options.ip = ip;
    options.registrations_max = devices_are.registrations_max;
    return std::move(vhca::create_sim_device(host, home(), options)).value();
  }
  base::Reactor& home() { return *reactors.front(); }
  std::vector<base::Reactor*> reactor_list() const {
    std::vector<base::Reactor*> list;
    for (const auto& reactor : reactors) list.push_back(reactor.get());
    return list;
  }

  base::sim::SimHost& host;
  const NodeDevices devices_are;
  std::vector<std::unique_ptr<base::Reactor>> reactors;
  std::unique_ptr<vhca::Device> device;
};

class ServerNode final : public Node {
 public:
  ServerNode(base::sim::SimHost& process, size_t reactor_count, ExportServerOptions options,
             const NodeDevices& its_devices = {})
      : Node(process, kServerIp, reactor_count, its_devices) {
    options.transport.listen = {kServerIp, kPort};
    options.transport.reactors = reactor_list();
    server = std::move(ExportServer::create(*device, std::move(options))).value();
  }
  std::unique_ptr<ExportServer> server;
};

class ClientNode final : public Node {
 public:
  using Node::Node;
  /// For a further path.
  vhca::Device& add_port(const std::string& ip) {
    return *more_ports.emplace_back(make_device(ip));
  }
  std::vector<std::unique_ptr<vhca::Device>> more_ports;
  std::unique_ptr<RemoteSession> session;
  std::vector<std::unique_ptr<RemoteSession>> more_sessions;
  std::vector<std::unique_ptr<RemoteDevice>> devices;  // go before the sessions
};

/// The installation: one server machine with /exports/disk.img, clients on machines of their own.
class Rig : public testing::Test {
 protected:
  explicit Rig(uint64_t seed = 1)
      : world(calm(seed, log)), server_machine(world.add_machine("server")) {
    world.fabric().add_port(server_machine, kServerIp);
    disk = &server_machine.add_disk("/exports/disk.img", {.size_bytes = 4 << 20});
    exports.root = "/exports";
    exports.transport.queue_depth = 16;
    exports.transport.max_io_bytes = 64 << 10;
  }

  void start_server(size_t reactor_count = 1) {
    server_host = &server_machine.start_process("server");
    auto node = std::make_unique<ServerNode>(*server_host, reactor_count, exports, node_devices);
    server = node->server.get();
    server_node = node.get();
    server_host->run(std::move(node));
  }
  void kill_server() {
    server_host->kill();
    server = nullptr;
    server_node = nullptr;
  }
  /// Power off and on: a new boot, unflushed data at the disk's mercy.
  void restart_machine() {
    server_machine.power_loss();
    server = nullptr;
    server_machine.power_on();
    start_server();
  }

  /// With a session, or for a refusal with this code without one.
  ClientNode& add_client(const std::string& name = "client", base::Errc refused = base::Errc::kOk) {
    const std::string ip = "10.0.1." + std::to_string(++clients);
    base::sim::SimMachine& machine = world.add_machine(name);
    world.fabric().add_port(machine, ip);
    base::sim::SimHost& host = machine.start_process(name);
    auto node = std::make_unique<ClientNode>(host, ip, client_reactors, node_devices);
    ClientNode& client = *node;
    host.run(std::move(node));
    RemoteSessionOptions options = session_options;
    options.transport.session_name = name;
    options.transport.server = {kServerIp, kPort};
    options.transport.reactors = client.reactor_list();
    for (size_t path = 1; path < client_paths; ++path) {
      const std::string port = "10." + std::to_string(path) + ".1." + std::to_string(clients);
      world.fabric().add_port(machine, port);
      options.paths.push_back({&client.add_port(port), {kServerIp, kPort}});
    }
    auto session = await(client, RemoteSession::open(*client.device, std::move(options)));
    EXPECT_EQ(session.code(), refused) << (session.ok() ? "" : session.error().message());
    if (session.ok()) client.session = std::move(session).value();
    return client;
  }
  /// One more of this client, by one path.
  RemoteSession& add_session(ClientNode& client, const std::string& name) {
    RemoteSessionOptions options = session_options;
    options.transport.session_name = name;
    options.transport.server = {kServerIp, kPort};
    options.transport.reactors = client.reactor_list();
    auto session = await(client, RemoteSession::open(*client.device, std::move(options)));
    EXPECT_TRUE(session.ok()) << session.error().message();
    return *client.more_sessions.emplace_back(std::move(session).value());
  }
  /// The same without waiting for the end.
  using SessionResult = base::Result<std::unique_ptr<RemoteSession>>;
  std::shared_ptr<std::optional<SessionResult>> begin_session(ClientNode& client,
                                                              const std::string& name) {
    auto result = std::make_shared<std::optional<SessionResult>>();
    client.home().post([this, &client, name, result] {
      RemoteSessionOptions options = session_options;
      options.transport.session_name = name;
      options.transport.server = {kServerIp, kPort};
      options.transport.reactors = client.reactor_list();
      client.home().spawn(keep(RemoteSession::open(*client.device, std::move(options)), result));
    });
    return result;
  }
  base::Result<RemoteDevice*> try_open(ClientNode& client, RemoteDeviceOptions options,
                                       RemoteSession* by = nullptr) {
    RemoteSession& session = by != nullptr ? *by : *client.session;
    auto opened = await(client, session.open_device(std::move(options)));
    if (!opened.ok()) return opened.error();
    client.devices.push_back(std::move(opened).value());
    return client.devices.back().get();
  }
  RemoteDevice& open(ClientNode& client, const std::string& name = "disk.img",
                     wire::AccessMode mode = wire::AccessMode::kReadWrite) {
    RemoteDeviceOptions options;
    options.name = name;
    options.mode = mode;
    auto opened = try_open(client, std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.error().message();
    return *opened.value();
  }

  /// Opens without waiting for the end.
  using OpenResult = base::Result<std::unique_ptr<RemoteDevice>>;
  std::shared_ptr<std::optional<OpenResult>> begin_open(ClientNode& client,
                                                        const std::string& name) {
    auto result = std::make_shared<std::optional<OpenResult>>();
    client.home().post([&client, name, result] {
      RemoteDeviceOptions options;
      options.name = name;
      client.home().spawn(keep(client.session->open_device(std::move(options)), result));
    });
    return result;
  }

  /// The value of a task run on the client's reactor.
  template <typename T>
  T await(Node& node, base::Task<T> task) {
    auto holder = std::make_shared<base::Task<T>>(std::move(task));
    auto result = std::make_shared<std::optional<T>>();
    base::Reactor& home = node.home();
    home.post([&home, holder, result] { home.spawn(keep(std::move(*holder), result)); });
    const bool ended = until([&] { return result->has_value(); });
    EXPECT_TRUE(ended) << "a task did not end within a simulated minute";
    if (!ended) std::abort();
    return std::move(**result);
  }
  void await(Node& node, base::Task<void> task) { (void)await(node, with_value(std::move(task))); }

  void submit(ClientNode& client, BlockDevice& device, Io& io) {
    client.home().post([&device, &io] { device.submit(io.request); });
  }
  /// On one of the client's reactors.
  void submit_on(size_t reactor, RemoteDevice& device, Io& io) {
    const BlockQueue queue = device.queues().at(reactor);
    queue.reactor->post([to = queue.device, &io] { to->submit(io.request); });
  }
  base::Errc run_on(size_t reactor, RemoteDevice& device, Io& io) {
    submit_on(reactor, device, io);
    return wait(io);
  }
  base::Errc run_on(size_t reactor, RemoteDevice& device, Io&& io) {
    return run_on(reactor, device, io);
  }
  base::Errc wait(Io& io) {
    EXPECT_TRUE(until([&] { return io.status.has_value(); }))
        << to_string(io.request.op) << " did not end within a simulated minute";
    return io.status.value_or(base::Errc::kTimedOut);
  }
  base::Errc run(ClientNode& client, BlockDevice& device, Io& io) {
    submit(client, device, io);
    return wait(io);
  }
  base::Errc run(ClientNode& client, BlockDevice& device, Io&& io) {
    return run(client, device, io);
  }
  base::Errc write(ClientNode& client, BlockDevice& device, uint64_t offset, uint64_t length,
                   int value) {
    return run(client, device, Io(BlockOp::kWrite, offset, length, value));
  }
  base::Errc flush(ClientNode& client, BlockDevice& device) {
    return run(client, device, Io(BlockOp::kFlush));
  }
  bool reads_as(ClientNode& client, BlockDevice& device, uint64_t offset, uint64_t length,
                int value) {
    Io read(BlockOp::kRead, offset, length, 0x55);
    return run(client, device, read) == base::Errc::kOk && read.all(value);
  }
  /// The lock of a disk whose last user may just have been killed.
  std::shared_ptr<base::sim::SimDiskLock> take_lock(base::sim::SimDisk& of) {
    std::shared_ptr<base::sim::SimDiskLock> lock;
    EXPECT_TRUE(until([&] { return (lock = of.lock(true)) != nullptr; }));
    return lock;
  }
  bool until(const std::function<bool()>& done) {
    const auto look = [&] {
      if (meanwhile) meanwhile();
      return done();
    };
    return world.run_until(look, 60 * base::kSecond);
  }

  const std::shared_ptr<LineCounter> log = std::make_shared<LineCounter>();
  base::sim::SimWorld world;
  base::sim::SimMachine& server_machine;
  base::sim::SimDisk* disk = nullptr;
  ExportServerOptions exports;
  // Simulated memory is not short by itself: touching it takes time only.
  RemoteSessionOptions session_options{.touch_buffers = false};
  base::sim::SimHost* server_host = nullptr;
  ServerNode* server_node = nullptr;
  ExportServer* server = nullptr;   // of the living process
  std::function<void()> meanwhile;  // called whenever anything has happened, while until() waits
  unsigned clients = 0;
  // Of clients that are added from now on. Path i of client n goes from 10.<i>.1.<n>.
  size_t client_reactors = 1;
  size_t client_paths = 1;
  NodeDevices node_devices;  // of all nodes that are added from now on

 private:
  template <typename T>
  static base::Task<void> keep(base::Task<T> task, std::shared_ptr<std::optional<T>> result) {
    result->emplace(co_await std::move(task));
  }
  static base::Task<bool> with_value(base::Task<void> task) {
    co_await std::move(task);
    co_return true;
  }
};

/// The installation with a server that also exports memory, "ram", and nothing, "void".
class ServedRig : public Rig {
 protected:
  explicit ServedRig(size_t reactor_count = 1) {
    exports.named = {{NamedExport::Kind::kMemory, "ram", 1 << 20},
                     {NamedExport::Kind::kNull, "void", 1 << 20}};
    start_server(reactor_count);
  }
};

}  // namespace braid::bnbd::test
