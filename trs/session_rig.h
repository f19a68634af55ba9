// For tests of sessions: a server process on a store of bytes, a client process, and a simulated
// network between them.
//
// The store lives in the rig, as a disk would: it outlives the server's process. Requests carry the
// user header StoreOp. A server can be told to hold its requests (a slow disk).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/sim.h"
#include "trs/client.h"
#include "trs/server.h"
#include "vhca/soft_device.h"

namespace braid::trs::testing {

inline constexpr const char* kServerIp = "10.0.0.1";
inline constexpr const char* kClientIp = "10.0.0.2";
inline constexpr uint16_t kPort = 1234;

struct StoreOp {
  uint64_t offset = 0;
  uint32_t fail_errno = 0;  // the server answers with this
  uint32_t from_store = 0;  // a read is answered from the store's own memory
  uint32_t hang = 0;        // waits until release(), whatever the store does
  uint32_t reserved = 0;
};

/// The disk behind the server.
struct Store {
  std::vector<std::byte> bytes = std::vector<std::byte>(1 << 22);
  bool hold = false;        // new requests wait until release()
  bool moves_data = false;  // ServerUser::moves_data()
  uint64_t requests = 0;
  uint64_t opened = 0, closed = 0;
  uint64_t lives = 0;               // server processes so far
  bool raises_notices = false;      // at once, when a session opens
  std::vector<uint64_t> write_log;  // offsets of writes, in the order in which they took effect
  std::string kept_for;             // if set: bytes from kept_from on are for clients of this IP
  uint64_t kept_from = 0;
};

/// What a process takes. Who makes worlds by the thousand, as a fuzz target, makes them small.
struct ProcessSize {
  size_t memory_bytes = 0;  // for I/O; 0: as much as any test needs
  uint32_t registrations_max = vhca::SimDeviceOptions{}.registrations_max;
  bool tcp = false;  // the TCP wire over simulated streams; with faults of ports
  /// Puts something before the device of this address, if set. (Sizes are constants of programs.)
  using Device = std::unique_ptr<vhca::Device>;
  Device (*wrap)(void* context, const std::string& ip, Device device) = nullptr;
  void* wrap_context = nullptr;
};

/// One process: reactors and a device.
class Process : public base::sim::SimProgram {
 public:
  Process(base::sim::SimHost& process, const char* ip, size_t reactor_count,
          const ProcessSize& its_size = {})
      : host(process), size(its_size) {
    for (size_t i = 0; i < reactor_count; ++i) {
      auto made = base::Reactor::create(host, {.name = "r" + std::to_string(i)});
      BRAID_ASSERT(made.ok());
      reactors.push_back(std::move(*made));
      host.drive(*reactors.back());
    }
    device = make_device(ip);
  }
  std::unique_ptr<vhca::Device> make_device(const std::string& ip) {
    if (size.tcp) {
      auto tcp = vhca::create_tcp_device(host, *reactors[0], {.ip = ip, .port_faults = true});
      BRAID_ASSERT(tcp.ok());
      return wrapped(ip, std::move(*tcp));
    }
    vhca::SimDeviceOptions options;
    options.ip = ip;
    options.registrations_max = size.registrations_max;
    auto made = vhca::create_sim_device(host, *reactors[0], options);
    BRAID_ASSERT(made.ok());
    return wrapped(ip, std::move(*made));
  }
  std::unique_ptr<vhca::Device> wrapped(const std::string& ip,
                                        std::unique_ptr<vhca::Device> made) const {
    return size.wrap != nullptr ? size.wrap(size.wrap_context, ip, std::move(made))
                                : std::move(made);
  }
  std::vector<base::Reactor*> reactor_list() const {
    std::vector<base::Reactor*> list;
    for (const auto& reactor : reactors) list.push_back(reactor.get());
    return list;
  }
  base::Reactor& home() { return *reactors[0]; }

  base::sim::SimHost& host;
  const ProcessSize size;
  std::vector<std::unique_ptr<base::Reactor>> reactors;
  std::unique_ptr<vhca::Device> device;
  std::vector<std::unique_ptr<vhca::Device>> more_devices;
};

class ServerProcess final : public Process, private ServerUser {
 public:
  ServerProcess(base::sim::SimHost& process, Store& disk, size_t reactor_count,
                const std::function<void(ServerOptions&)>& adjust,
                const std::vector<std::string>& more_ips = {}, const ProcessSize& its_size = {})
      : Process(process, kServerIp, reactor_count, its_size), store(disk) {
    ++store.lives;
    ServerOptions options;
    options.listen = {kServerIp, kPort};
    options.reactors = reactor_list();
    options.queue_depth = 16;
    options.max_io_bytes = 16 << 10;
    for (const std::string& ip : more_ips) {
      more_devices.push_back(make_device(ip));
      options.endpoints.push_back({more_devices.back().get(), {ip, kPort}});
    }
    if (adjust) adjust(options);
    auto made = Server::create(*device, options, *this);
    BRAID_ASSERT(made.ok());
    server = std::move(*made);
    auto mr = server->register_memory(store.bytes.data(), store.bytes.size());
    BRAID_ASSERT(mr.ok());
    store_mr = std::move(*mr);
  }
  ~ServerProcess() override { held.clear(); }
  static base::Task<void> use(ServerSession& session, const vhca::Mr& memory) {
    (void)co_await session.use_memory(memory);  // a path that cannot have it does not come up
  }

  /// Lets what is held take effect and be answered.
  void release() {
    while (!held.empty()) {
      ServerRequest* const next = held.front();
      held.pop_front();
      apply(*next);
    }
  }

  Store& store;
  std::unique_ptr<Server> server;
  std::unique_ptr<vhca::Mr> store_mr;
  std::deque<ServerRequest*> held;

 private:
  void session_opened(ServerSession& session) override {
    ++store.opened;
    last_name = session.name();
    if (store.raises_notices) session.raise_notice();
    if (store_mr) home().spawn(use(session, *store_mr));
  }
  void session_closed(ServerSession&) override { ++store.closed; }
  void request(ServerRequest& request) override {
    ++store.requests;
    StoreOp op;
    if (request.user_header.size() == sizeof(op)) {
      std::memcpy(&op, request.user_header.data(), sizeof(op));
    }
    if (store.hold || op.hang != 0) {
      held.push_back(&request);
    } else {
      apply(request);
    }
  }
  bool moves_data(const ServerSession&, const base::Reactor&,
                  std::span<const std::byte> user_header) override {
    return store.moves_data && user_header.size() == sizeof(StoreOp);
  }
  void apply(ServerRequest& request) {
    StoreOp op;
    if (request.user_header.size() != sizeof(op)) {
      request.answer(base::Errc::kInvalid);
      return;
    }
    std::memcpy(&op, request.user_header.data(), sizeof(op));
    if (request.has_words) {
      request.answer_words = {request.words[1], request.words[0]};
      request.has_answer_words = true;
    }
    if (op.fail_errno != 0) {
      request.answer(base::errc_from_errno(static_cast<int>(op.fail_errno)));
      return;
    }
    if (request.data.size() > store.bytes.size() ||
        op.offset > store.bytes.size() - request.data.size()) {
      request.answer(base::Errc::kOutOfRange);
      return;
    }
    if (!store.kept_for.empty() && op.offset + request.data.size() > store.kept_from &&
        !request.session->peer_text().starts_with(store.kept_for + ":")) {
      request.answer(base::Errc::kPermission);
      return;
    }
    std::byte* const at = store.bytes.data() + op.offset;
    if (request.direction == Direction::kWrite) {
      std::memcpy(at, request.data.data(), request.data.size());
      store.write_log.push_back(op.offset);
    } else if (op.from_store != 0) {
      const DataBuffer source{store_mr.get(), at, static_cast<uint32_t>(request.data.size())};
      request.answer(base::Errc::kOk, &source);
      return;
    } else {
      std::memcpy(request.data.data(), at, request.data.size());
    }
    request.answer(base::Errc::kOk);
  }

 public:
  std::string last_name;
};

class ClientProcess;

/// One I/O of a test.
struct Io {
  ClientRequest request;
  StoreOp op;
  ClientProcess* client = nullptr;
  std::span<std::byte> buffer;
  bool done = false;
  unsigned completions = 0;
  base::Errc status = base::Errc::kOk;
  uint64_t done_at_ns = 0;
  std::function<void(Io&)> after;
};

class ClientProcess final : public Process, private SessionUser {
 public:
  ClientProcess(base::sim::SimHost& process, size_t reactor_count, const ProcessSize& its_size = {})
      : Process(process, kClientIp, reactor_count, its_size),
        memory_bytes(its_size.memory_bytes == 0 ? 8 << 20 : its_size.memory_bytes) {
    auto made_domain = Domain::create(*device);
    BRAID_ASSERT(made_domain.ok());
    domain = std::move(*made_domain);
    auto segment = host.create_segment(memory_bytes, "test");
    BRAID_ASSERT(segment.ok());
    memory = std::move(*segment);
    auto made_mr = domain->register_memory(memory->data(), memory_bytes,
                                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    BRAID_ASSERT(made_mr.ok());
    mr = std::move(*made_mr);
  }

  /// Opens the session; `opened` or `open_error` tells how it went.
  void open(const std::function<void(ClientOptions&)>& adjust = {}) {
    ClientOptions options;
    options.session_name = "client";
    options.server = {kServerIp, kPort};
    options.reactors = reactor_list();
    options.paths = more_paths;
    if (adjust) adjust(options);
    home().spawn(open_task(options));
    home().wake();
  }
  void close() {
    home().spawn(close_task());
    home().wake();
  }

  /// Prepares an I/O over `length` bytes of the client's memory.
  std::unique_ptr<Io> make_io(Direction direction, uint64_t offset, uint32_t length) {
    auto io = std::make_unique<Io>();
    io->client = this;
    io->op.offset = offset;
    BRAID_ASSERT(used + length <= memory_bytes);
    io->buffer = {memory->data() + used, length};
    used += length;
    io->request.direction = direction;
    io->request.user_header = std::as_bytes(std::span(&io->op, 1));
    io->request.data = {mr.get(), io->buffer.data(), length};
    io->request.context = io.get();
    io->request.done = [](ClientRequest& request, base::Errc status) {
      auto& self = *static_cast<Io*>(request.context);
      self.done = true;
      ++self.completions;
      self.status = status;
      self.done_at_ns = self.client->home().now_ns();
      if (self.after) self.after(self);
    };
    return io;
  }
  /// Submits with a permit, which must be there.
  void submit(Io& io, size_t reactor = 0) {
    Permit permit = session->queue(reactor).acquire();
    BRAID_ASSERT(permit);
    io.done = false;
    io.request.permit = std::move(permit);
    session->queue(reactor).submit(io.request);
    reactors[reactor]->wake();
  }

  /// A port of its own for a further path to this address of the server.
  PathOptions add_port(const std::string& ip, const std::string& server_ip) {
    more_devices.push_back(make_device(ip));
    auto index = domain->add_device(*more_devices.back());
    BRAID_ASSERT(index.ok());
    return {{server_ip, kPort}, *index};
  }

  const size_t memory_bytes;
  std::vector<PathOptions> more_paths;  // for open()
  std::unique_ptr<Domain> domain;
  std::unique_ptr<base::Segment> memory;
  std::unique_ptr<vhca::Mr> mr;
  size_t used = 0;
  bool opened = false, closed = false;
  std::optional<base::Error> open_error;
  unsigned reconnected_calls = 0, disconnected_calls = 0, gave_up_calls = 0;
  unsigned restored_calls = 0, returned_calls = 0;
  uint64_t disconnected_at_ns = 0;
  std::string disconnected_why;
  std::string gave_up_why;
  unsigned notice_calls = 0;
  unsigned lost_calls = 0;
  std::string lost_why;
  uint64_t lost_at_ns = 0;
  std::function<base::Task<base::Status>()> on_reconnected;
  std::unique_ptr<ClientSession> session;  // last: goes first

 private:
  base::Task<void> open_task(ClientOptions options) {
    SessionUser& user = *this;
    Domain& all = *domain;
    auto result = co_await ClientSession::open(all, options, user);
    if (result.ok()) {
      session = std::move(*result);
      opened = true;
    } else {
      open_error = result.error();
    }
  }
  base::Task<void> close_task() {
    co_await session->close();
    closed = true;
  }
  base::Task<base::Status> reconnected() override {
    ++reconnected_calls;
    if (on_reconnected) co_return co_await on_reconnected();
    co_return base::Status();
  }
  void disconnected(const base::Error& why) override {
    ++disconnected_calls;
    disconnected_at_ns = home().now_ns();
    disconnected_why = why.message();
  }
  void restored() override { ++restored_calls; }
  void requests_returned() override { ++returned_calls; }
  void lost(const base::Error& why) override {
    ++lost_calls;
    lost_why = why.message();
    lost_at_ns = home().now_ns();
  }
  void notice() override { ++notice_calls; }
  void gave_up(const base::Error& why) override {
    ++gave_up_calls;
    gave_up_why = why.message();
  }
};

/// The installation. `reactors` on each side.
class SessionRig : public ::testing::Test {
 protected:
  explicit SessionRig(size_t reactors = 1, uint64_t seed = 1, std::vector<std::string> mutants = {},
                      std::shared_ptr<base::LogSink> log = nullptr)
      : world(world_options(seed, std::move(mutants), std::move(log))), reactor_count(reactors) {
    server_machine = &world.add_machine("server");
    client_machine = &world.add_machine("client");
    world.fabric().add_port(*server_machine, kServerIp);
    world.fabric().add_port(*client_machine, kClientIp);
  }

  void start_server() {
    server_host = &server_machine->start_process("server");
    auto program = std::make_unique<ServerProcess>(*server_host, store, reactor_count,
                                                   adjust_server, server_ips, process_size);
    server = program.get();
    server_host->run(std::move(program));
  }
  void kill_server() {
    server_host->kill();
    server = nullptr;
  }
  void start_client() {
    client_host = &client_machine->start_process("client");
    auto program = std::make_unique<ClientProcess>(*client_host, reactor_count, process_size);
    client = program.get();
    client_host->run(std::move(program));
    if (adjust_client) adjust_client(*client);
  }
  /// Server, client, and a session between them.
  void connect(const std::function<void(ClientOptions&)>& adjust = {}) {
    start_server();
    start_client();
    client->open([&](ClientOptions& options) {
      options.key = client_key;
      if (adjust) adjust(options);
    });
    ASSERT_TRUE(until([&] { return client->opened || client->open_error.has_value(); }));
    ASSERT_TRUE(client->opened) << client->open_error->message();
  }
  bool until(const std::function<bool()>& done, uint64_t limit_ns = 30 * base::kSecond) {
    return world.run_until(done, limit_ns);
  }
  /// Every permit can be acquired again: none was lost.
  void expect_all_permits_back(uint32_t admin_permits = 1) {
    uint32_t count = 0;
    for (size_t i = 0; i < reactor_count; ++i) {
      std::vector<Permit> all;
      while (Permit permit = client->session->queue(i).acquire()) all.push_back(std::move(permit));
      count += static_cast<uint32_t>(all.size());
    }
    EXPECT_EQ(count, client->session->limits().queue_depth - admin_permits);
  }
  static void fill(std::span<std::byte> buffer, uint64_t stamp) {
    for (size_t i = 0; i < buffer.size(); ++i) {
      buffer[i] = static_cast<std::byte>((stamp * 131 + i * 7) & 0xff);
    }
  }
  static bool filled(std::span<const std::byte> buffer, uint64_t stamp) {
    for (size_t i = 0; i < buffer.size(); ++i) {
      if (buffer[i] != static_cast<std::byte>((stamp * 131 + i * 7) & 0xff)) return false;
    }
    return true;
  }

  base::sim::SimWorld world;
  Store store;
  const size_t reactor_count;
  ProcessSize process_size;  // of those that are started from now on
  std::function<void(ServerOptions&)> adjust_server;
  std::vector<std::string> server_ips;  // further ones
  KeyPtr client_key;                    // of connect()
  std::function<void(ClientProcess&)> adjust_client;
  base::sim::SimMachine* server_machine = nullptr;
  base::sim::SimMachine* client_machine = nullptr;
  base::sim::SimHost* server_host = nullptr;
  base::sim::SimHost* client_host = nullptr;
  ServerProcess* server = nullptr;  // of the living process
  ClientProcess* client = nullptr;

 private:
  static base::sim::SimWorldOptions world_options(uint64_t seed, std::vector<std::string> mutants,
                                                  std::shared_ptr<base::LogSink> log) {
    base::sim::SimWorldOptions options;
    options.log_sink = std::move(log);
    options.seed = seed;
    options.mutants = std::move(mutants);
    return options;
  }
};

}  // namespace braid::trs::testing
