// What a node gives to NBD clients: what it tells of its local devices, and who gets which, and
// when.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/endian.h"
#include "base/linux_test_folder.h"
#include "cli/metrics/metrics_text.h"
#include "cli/test_node.h"
#include "cli/top/rates.h"

namespace braid::cli {
namespace {

using base::be16;
using base::be32;
using base::be64;
using base::Errc;
using nlohmann::json;
using testing::HasSubstr;

constexpr uint32_t kBlock = 4096;

/// One that blocks; of the protocol it knows what it needs.
class NbdClient {
 public:
  /// In the handshake.
  explicit NbdClient(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    EXPECT_LT(path.size(), sizeof(address.sun_path));
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(receive(18), 18U) << "a greeting";
  }
  NbdClient(const std::string& path, const std::string& name) : NbdClient(path) { ask_for(name); }
  ~NbdClient() { ::close(fd_); }
  NbdClient(const NbdClient&) = delete;
  NbdClient& operator=(const NbdClient&) = delete;

  /// The server may be gone by then: so it gets none.
  void ask_for(const std::string& name) {
    const std::string option = put(be32(3)) + "IHAVEOPT" + put(be32(1)) +
                               put(be32(static_cast<uint32_t>(name.size()))) + name;
    (void)::send(fd_, option.data(), option.size(), MSG_NOSIGNAL);
    has_export_ = receive(10) == 10;
    be64 size_bytes(0);
    if (has_export_) std::memcpy(&size_bytes, got_.data(), sizeof(size_bytes));
    size_bytes_ = size_bytes;
  }
  bool has_export() const { return has_export_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool read() { return ask(0, "") && receive(kBlock) == kBlock; }
  bool write() { return ask(1, std::string(kBlock, 'x')); }
  /// Waits until the server has closed.
  bool cut_off() { return receive(1) == 0; }
  /// Without taking the answer.
  void begin_read(uint32_t length_bytes) const { send(request(0, length_bytes)); }

 private:
  template <typename T>
  static std::string put(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }
  void send(const std::string& bytes) const {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }
  /// How much has come before the server closed.
  size_t receive(size_t length) {
    got_.assign(length, '\0');
    const ssize_t got = ::recv(fd_, got_.data(), length, MSG_WAITALL);
    return got < 0 ? 0 : static_cast<size_t>(got);
  }
  static std::string request(uint16_t command, uint32_t length_bytes) {
    return put(be32(0x25609513)) + put(be16(0)) + put(be16(command)) + put(be64(7)) + put(be64(0)) +
           put(be32(length_bytes));
  }
  bool ask(uint16_t command, const std::string& payload) {
    send(request(command, kBlock) + payload);
    return receive(16) == 16 && got_.substr(4, 4) == put(be32(0));
  }

  const int fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string got_;
  bool has_export_ = false;
  uint64_t size_bytes_ = 0;
};

LocalNbdExport memory(const std::string& name, uint64_t size_bytes) {
  return {
      .kind = LocalNbdExport::Kind::kMemory, .name = name, .path = "", .size_bytes = size_bytes};
}

/// Has local devices only, at first.
std::unique_ptr<Node> start_nbd(const std::string& socket, std::vector<LocalNbdExport> local,
                                const std::string& default_export) {
  NodeOptions options;
  options.role = "nbd";
  options.nbd.emplace();
  options.nbd->unix_path = socket;
  options.nbd->local = std::move(local);
  options.nbd->default_export = default_export;
  return start_node(std::move(options));
}

NodeSample sampled(Node& node) {
  auto sample = sample_of(*node.call("sample", json::object()));
  EXPECT_TRUE(sample.ok()) << sample.error().message();
  return sample.ok() ? std::move(*sample) : NodeSample();
}

void expect_series(const NodeSample& sample, const std::string& series, uint64_t value) {
  const std::string name = series.substr(0, series.find('{'));
  const std::string labels = series.substr(name.size() + 1);
  EXPECT_THAT(metrics_text({&sample, 1}), HasSubstr(name + "{node=\"" + sample.node + "\"" +
                                                    labels + "} " + std::to_string(value) + "\n"));
}

TEST(NodeNbd, TellsOfItsLocalDevicesAndOfItsDoor) {
  const base::ScratchFolder folder;
  folder.make_file("disk", 1 << 20);
  NodeOptions options;
  options.role = "nbd";
  options.nbd.emplace();
  options.nbd->unix_path = folder / "socket";
  options.nbd->local = {
      {.kind = LocalNbdExport::Kind::kMemory, .name = "ram", .path = "", .size_bytes = 8 << 20},
      {.kind = LocalNbdExport::Kind::kFile, .name = "file", .path = folder / "disk"}};
  const auto node = start_node(std::move(options));
  ASSERT_NE(node, nullptr);
  const NodeSample before = sampled(*node);
  ASSERT_EQ(before.devices.size(), 2U);
  EXPECT_FALSE(NbdClient(folder / "socket", "none").has_export());
  NbdClient client(folder / "socket", "ram"), other(folder / "socket", "file");
  ASSERT_TRUE(client.has_export() && other.has_export());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(client.read());
  EXPECT_TRUE(client.write());
  EXPECT_TRUE(other.write());

  // The door may hear of a client's end after the next one has come.
  NodeSample after;
  EXPECT_TRUE(until([&] {
    after = sampled(*node);
    return after.nbd.door.refused == 1;
  }));
  expect_series(after, R"(braid_device_reads_total{,device="ram")", 3);
  expect_series(after, R"(braid_device_read_bytes_total{,device="ram")", 3 * kBlock);
  expect_series(after, R"(braid_device_writes_total{,device="ram")", 1);
  expect_series(after, R"(braid_device_writes_total{,device="file")", 1);
  expect_series(after, R"(braid_device_reads_total{,device="file")", 0);
  expect_series(after, R"(braid_device_latency_seconds_count{,device="ram",kind="read")", 3);
  expect_series(after, R"(braid_device_latency_seconds_count{,device="ram",kind="write")", 1);
  expect_series(after, R"(braid_device_state{,device="ram",state="open")", 1);
  expect_series(after, "braid_nbd_connects_total{", 3);
  expect_series(after, "braid_nbd_connects_granted_total{", 2);
  expect_series(after, "braid_nbd_connects_refused_total{", 1);
  const std::string text = metrics_text({&after, 1});
  EXPECT_THAT(text, HasSubstr(R"(target="memory:8.0 MiB",backend="memory",server="",session="0")"));
  EXPECT_THAT(text, HasSubstr("target=\"file:" + (folder / "disk") + "\",backend=\"file\""));

  const std::vector<TopRow> rows = rows_between({&before, 1}, {&after, 1});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].name, "ram");
  ASSERT_TRUE(rows[1].rates);
  EXPECT_GT(rows[1].rates->reads, 0);
  EXPECT_TRUE(rows[1].rates->p99_us) << "no latency";
  EXPECT_TRUE(stop(*node, false).ok());
}

/// A client that comes back while its disk is away must not write to another one.
TEST(NodeNbd, GivesWhoNamesNoExportTheDefaultOneOrNone) {
  const base::ScratchFolder folder;
  const std::string socket = folder / "socket";
  NodeOptions serving;
  serving.role = "server";
  serving.serve.emplace();
  serving.serve->listen = {"127.0.0.1", 0};
  serving.serve->memory = {{"ram", 8 << 20}};
  const auto server = start_node(std::move(serving));
  ASSERT_NE(server, nullptr);
  const auto node = start_nbd(socket, {memory("scratch", 1 << 20)}, "vm");
  ASSERT_NE(node, nullptr);
  EXPECT_FALSE(NbdClient(socket, "").has_export()) << "vm is not mapped yet";
  EXPECT_FALSE(NbdClient(socket, "vm").has_export());
  EXPECT_TRUE(NbdClient(socket, "scratch").has_export());

  const json status = *server->call("status", json::object());
  const json params{{"target", status["server"]["listen"].get<std::string>() + "/ram"},
                    {"name", "vm"},
                    {"front_end", "nbd-server"}};
  const auto mapped = node->call("map", params);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  NbdClient client(socket, "");
  EXPECT_EQ(client.size_bytes(), uint64_t{8} << 20);
  EXPECT_TRUE(client.write());

  const auto unmapped = node->call("unmap", {{"name", "vm"}, {"force", false}});
  EXPECT_TRUE(unmapped.ok()) << unmapped.error().message();
  EXPECT_TRUE(client.cut_off());
  EXPECT_FALSE(NbdClient(socket, "").has_export());
  EXPECT_EQ(NbdClient(socket, "scratch").size_bytes(), uint64_t{1} << 20);
  EXPECT_TRUE(stop(*node, false).ok());
  EXPECT_TRUE(stop(*server, false).ok());
}

/// Exports go one after the other, and their clients come back at once.
TEST(NodeNbd, LetsNobodyInAnyMoreOnceItEnds) {
  const base::ScratchFolder folder;
  const std::string socket = folder / "socket";
  const auto node = start_nbd(socket, {memory("vm", 8 << 20), memory("scratch", 1 << 20)}, "vm");
  ASSERT_NE(node, nullptr);
  // Its answers are more than a socket holds: the end of "vm" waits for it, two seconds at most.
  auto greedy = std::make_unique<NbdClient>(socket, "vm");
  ASSERT_TRUE(greedy->has_export());
  for (int i = 0; i < 16; ++i) greedy->begin_read(1 << 20);
  ASSERT_TRUE(until([&] {
    const json status = *node->call("status", json::object());
    return status["devices"][0]["kernel"]["requests"].get<int>() == 16;
  }));
  NbdClient named(socket), unnamed(socket);
  const auto ended = std::make_shared<std::promise<base::Status>>();
  node->stop(false, [ended](const base::Status& status) { ended->set_value(status); });
  EXPECT_TRUE(node->call("status", json::object()).ok()) << "asked behind the begin of the end";
  named.ask_for("scratch");
  unnamed.ask_for("");
  EXPECT_FALSE(named.has_export());
  EXPECT_FALSE(unnamed.has_export());
  greedy.reset();
  EXPECT_TRUE(ended->get_future().get().ok());
}

/// Who stopped politely loses patience: neither end takes away what the other one waits for.
TEST(NodeNbd, EndsByForceWhileItEndsPolitely) {
  const base::ScratchFolder folder;
  const std::string socket = folder / "socket";
  const auto node = start_nbd(socket, {memory("vm", 8 << 20), memory("scratch", 1 << 20)}, "vm");
  ASSERT_NE(node, nullptr);
  NbdClient greedy(socket, "vm");
  ASSERT_TRUE(greedy.has_export());
  for (int i = 0; i < 16; ++i) greedy.begin_read(1 << 20);
  ASSERT_TRUE(until([&] {
    const json status = *node->call("status", json::object());
    return status["devices"][0]["kernel"]["requests"].get<int>() > 0;
  }));
  std::vector<std::future<base::Status>> ended;
  for (const bool force : {false, true}) {
    const auto promise = std::make_shared<std::promise<base::Status>>();
    ended.push_back(promise->get_future());
    node->stop(force, [promise](const base::Status& status) { promise->set_value(status); });
  }
  for (auto& each : ended) EXPECT_TRUE(each.get().ok());
}

TEST(NodeNbd, MapsNothingUnderTheNameOfALocalDevice) {
  const base::ScratchFolder folder;
  NodeOptions options;
  options.role = "nbd";
  options.nbd.emplace();
  options.nbd->unix_path = folder / "socket";
  options.nbd->local = {
      {.kind = LocalNbdExport::Kind::kNull, .name = "disk", .path = "", .size_bytes = 1 << 20}};
  options.attach = attach_nothing;
  const auto node = start_node(std::move(options));
  ASSERT_NE(node, nullptr);
  expect_refused(node->call("map", {{"target", "127.0.0.1:1/disk"}}), Errc::kExists,
                 "a device named \"disk\" is there already: null:1.0 MiB");
  EXPECT_TRUE(stop(*node, false).ok());
}

}  // namespace
}  // namespace braid::cli
