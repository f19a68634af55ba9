// For tests of groups: several servers on disks of bytes, one client process with a session to
// each, and a simulated network between them.
#pragma once

#include "trs/group.h"
#include "trs/session_rig.h"

namespace braid::trs::testing {

/// What a server keeps; it outlives its process, as a disk would.
struct LegDisk {
  std::vector<std::byte> bytes = std::vector<std::byte>(1 << 20);
  bool hold = false;  // requests wait until release()
  base::Errc fails = base::Errc::kOk;
  uint64_t requests = 0;
};

class LegServer final : public Process, private ServerUser {
 public:
  LegServer(base::sim::SimHost& process, const std::string& ip, size_t reactor_count, LegDisk& disk,
            const std::function<void(ServerOptions&)>& adjust)
      : Process(process, ip.c_str(), reactor_count), disk_(disk) {
    ServerOptions options;
    options.listen = {ip, kPort};
    options.reactors = reactor_list();
    options.queue_depth = 16;
    options.max_io_bytes = 16 << 10;
    if (adjust) adjust(options);
    server = std::move(*Server::create(*device, options, *this));
  }
  ~LegServer() override { held.clear(); }
  void release_one() {
    if (held.empty()) return;
    ServerRequest& next = *held.front();
    held.pop_front();
    apply(next);
  }
  void release() {
    disk_.hold = false;
    while (!held.empty()) {
      ServerRequest& next = *held.front();
      held.pop_front();
      apply(next);
    }
  }
  std::unique_ptr<Server> server;
  std::deque<ServerRequest*> held;

 private:
  void session_opened(ServerSession&) override {}
  void session_closed(ServerSession&) override {}
  void request(ServerRequest& request) override {
    ++disk_.requests;
    if (disk_.hold) {
      held.push_back(&request);
    } else {
      apply(request);
    }
  }
  void apply(ServerRequest& request) {
    uint64_t offset = 0;
    std::memcpy(&offset, request.user_header.data(), sizeof(offset));
    if (disk_.fails != base::Errc::kOk) return request.answer(disk_.fails);
    std::byte* const at = disk_.bytes.data() + offset;
    if (request.direction == Direction::kWrite) {
      std::memcpy(at, request.data.data(), request.data.size());
    } else {
      std::memcpy(request.data.data(), at, request.data.size());
    }
    if (request.has_words) {
      request.answer_words = {request.words[0] + 1, request.words[1] + 1};
      request.has_answer_words = true;
    }
    request.answer(base::Errc::kOk);
  }
  LegDisk& disk_;
};

/// One request of a test.
struct GroupIo {
  GroupRequest request;
  uint64_t offset = 0;
  std::span<std::byte> buffer;
  unsigned completions = 0;
  std::function<void(GroupIo&)> after;
  bool done() const { return completions > 0; }
};

class GroupClient final : public Process, private SessionUser {
 public:
  static constexpr const char* kIp = "10.0.0.2";
  static constexpr size_t kMemoryBytes = 4 << 20;

  GroupClient(base::sim::SimHost& process, size_t reactor_count)
      : Process(process, kIp, reactor_count) {
    domain = std::move(*Domain::create(*device));
    memory = std::move(*host.create_segment(kMemoryBytes, "test"));
    mr = std::move(*domain->register_memory(memory->data(), kMemoryBytes,
                                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  }
  void open(size_t index, const std::string& ip, std::function<void(ClientOptions&)> adjust) {
    sessions.resize(std::max(sessions.size(), index + 1));
    home().spawn(open_task(index, ip, std::move(adjust)));
    home().wake();
  }
  void run(base::Task<void> task) {
    home().spawn(std::move(task));
    home().wake();
  }
  base::Task<void> open_task(size_t index, std::string ip,
                             std::function<void(ClientOptions&)> adjust) {
    ClientOptions options;
    options.session_name = "group" + std::to_string(index);
    options.server = {ip, kPort};
    options.reactors = reactor_list();
    options.reconnect.delay_max_ns = 200 * base::kMillisecond;
    if (adjust) adjust(options);
    Domain& all = *domain;
    SessionUser& user = *this;
    auto opened = co_await ClientSession::open(all, options, user);
    BRAID_ASSERT(opened.ok());
    sessions[index] = std::move(*opened);
  }
  base::Task<void> add_task(Group& group, size_t session, LegPolicy policy, size_t& slot) {
    auto added = co_await group.add_leg(*sessions[session], policy);
    BRAID_ASSERT(added.ok());
    slot = *added;
  }
  base::Task<void> remove_task(Group& group, size_t slot, bool& removed) {
    const base::Status status = co_await group.remove_leg(slot);
    BRAID_ASSERT(status.ok());
    removed = true;
  }
  base::Task<void> close_task(Group& group, bool& closed) {
    co_await group.close();
    closed = true;
  }
  std::unique_ptr<GroupIo> make_io(uint64_t offset, uint32_t length) {
    auto io = std::make_unique<GroupIo>();
    io->offset = offset;
    BRAID_ASSERT(used + length <= kMemoryBytes);
    io->buffer = {memory->data() + used, length};
    used += length;
    io->request.user_header = std::as_bytes(std::span(&io->offset, 1));
    io->request.data = {mr.get(), io->buffer.data(), length};
    io->request.context = io.get();
    io->request.done = [](GroupRequest& request) {
      auto& self = *static_cast<GroupIo*>(request.context);
      ++self.completions;
      if (self.after) self.after(self);
    };
    return io;
  }
  void submit(Group& group, GroupIo& io, size_t reactor = 0) {
    reactors[reactor]->post([&group, &io, reactor] { group.queue(reactor).submit(io.request); });
  }

  std::unique_ptr<Domain> domain;
  std::unique_ptr<base::Segment> memory;
  std::unique_ptr<vhca::Mr> mr;
  size_t used = 0;
  std::vector<std::unique_ptr<ClientSession>> sessions;
  std::vector<std::unique_ptr<Group>> groups;  // go before the sessions

 private:
  base::Task<base::Status> reconnected() override { co_return base::Status(); }
  void disconnected(const base::Error&) override {}
};

class GroupRig : public ::testing::Test {
 protected:
  explicit GroupRig(size_t reactors = 1, uint64_t seed = 1)
      : world({.seed = seed}), reactor_count(reactors) {
    client_machine = &world.add_machine("client");
    world.fabric().add_port(*client_machine, GroupClient::kIp);
  }
  static std::string ip_of(size_t server) { return "10.0.1." + std::to_string(server + 1); }

  void start_server(size_t index) {
    hosts[index] = &machines[index]->start_process("server");
    auto program = std::make_unique<LegServer>(*hosts[index], ip_of(index), reactor_count,
                                               *disks[index], adjust_server);
    servers[index] = program.get();
    hosts[index]->run(std::move(program));
  }
  void kill_server(size_t index) {
    hosts[index]->kill();
    servers[index] = nullptr;
  }
  void black_hole(size_t index, bool on) {
    world.fabric().set_black_hole(GroupClient::kIp, ip_of(index), on);
    world.fabric().set_black_hole(ip_of(index), GroupClient::kIp, on);
  }
  /// Servers, the client, a session to each.
  void connect(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      machines.push_back(&world.add_machine("server" + std::to_string(i)));
      world.fabric().add_port(*machines.back(), ip_of(i));
      disks.push_back(std::make_unique<LegDisk>());
      hosts.push_back(nullptr);
      servers.push_back(nullptr);
      start_server(i);
    }
    auto& host = client_machine->start_process("client");
    auto program = std::make_unique<GroupClient>(host, reactor_count);
    client = program.get();
    host.run(std::move(program));
    for (size_t i = 0; i < count; ++i) client->open(i, ip_of(i), adjust_session);
    ASSERT_TRUE(until([&] {
      return std::all_of(client->sessions.begin(), client->sessions.end(),
                         [](const auto& session) { return session != nullptr; });
    }));
  }
  Group& make_group(const std::vector<size_t>& sessions, LegPolicy policy = LegPolicy::kWait) {
    client->groups.push_back(std::move(*Group::create(client->reactor_list())));
    Group& group = *client->groups.back();
    for (size_t i = 0; i < sessions.size(); ++i) EXPECT_EQ(add(group, sessions[i], policy), i);
    return group;
  }
  size_t add(Group& group, size_t session, LegPolicy policy = LegPolicy::kWait) {
    size_t slot = kLegsMax;
    client->run(client->add_task(group, session, policy, slot));
    EXPECT_TRUE(until([&] { return slot != kLegsMax; }));
    return slot;
  }
  void close(Group& group) {
    bool closed = false;
    client->run(client->close_task(group, closed));
    EXPECT_TRUE(until([&] { return closed; }));
  }
  bool until(const std::function<bool()>& done, uint64_t limit_ns = 60 * base::kSecond) {
    return world.run_until(done, limit_ns);
  }
  static void fill(std::span<std::byte> buffer, uint64_t stamp) {
    for (size_t i = 0; i < buffer.size(); ++i)
      buffer[i] = static_cast<std::byte>((stamp * 131 + i * 7) & 0xff);
  }
  bool stored(size_t server, const GroupIo& io) const {
    return std::equal(io.buffer.begin(), io.buffer.end(),
                      disks[server]->bytes.begin() + static_cast<ptrdiff_t>(io.offset));
  }
  bool connected(size_t session) const {
    return client->sessions[session]->state() == SessionState::kConnected;
  }
  std::pair<uint64_t, uint64_t> messages(size_t session) const {
    uint64_t sent = 0, received = 0;
    for (size_t i = 0; i < reactor_count; ++i) {
      const ClientStatistics counts = client->sessions[session]->queue(i).statistics();
      sent += counts.messages_sent;
      received += counts.messages_received;
    }
    return {sent, received};
  }
  void expect_all_permits_back() {
    for (size_t session = 0; session < client->sessions.size(); ++session) {
      uint32_t count = 0;
      for (size_t i = 0; i < reactor_count; ++i) {
        count +=
            static_cast<uint32_t>(client->sessions[session]->queue(i).statistics().permits_free);
      }
      const SessionLimits& limits = client->sessions[session]->limits();
      EXPECT_EQ(count, limits.queue_depth - limits.admin_permits) << "session " << session;
    }
  }

  base::sim::SimWorld world;
  const size_t reactor_count;
  std::function<void(ServerOptions&)> adjust_server;
  std::function<void(ClientOptions&)> adjust_session;
  base::sim::SimMachine* client_machine = nullptr;
  std::vector<base::sim::SimMachine*> machines;
  std::vector<base::sim::SimHost*> hosts;
  std::vector<LegServer*> servers;
  std::vector<std::unique_ptr<LegDisk>> disks;
  GroupClient* client = nullptr;
};

}  // namespace braid::trs::testing
