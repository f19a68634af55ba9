// Local devices that a node gives to NBD clients: what it tells of them.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

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
  NbdClient(const std::string& path, const std::string& name) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    EXPECT_LT(path.size(), sizeof(address.sun_path));
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(receive(18), 18U) << "a greeting";
    send(put(be32(3)) + "IHAVEOPT" + put(be32(1)) + put(be32(static_cast<uint32_t>(name.size()))) +
         name);
    has_export_ = receive(10) == 10;
  }
  ~NbdClient() { ::close(fd_); }
  NbdClient(const NbdClient&) = delete;
  NbdClient& operator=(const NbdClient&) = delete;

  bool has_export() const { return has_export_; }
  bool read() { return ask(0, "") && receive(kBlock) == kBlock; }
  bool write() { return ask(1, std::string(kBlock, 'x')); }

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
  bool ask(uint16_t command, const std::string& payload) {
    send(put(be32(0x25609513)) + put(be16(0)) + put(be16(command)) + put(be64(7)) + put(be64(0)) +
         put(be32(kBlock)) + payload);
    return receive(16) == 16 && got_.substr(4, 4) == put(be32(0));
  }

  const int fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string got_;
  bool has_export_ = false;
};

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
