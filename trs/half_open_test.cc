// Clients that leave sessions half open beside an honest one that loses its path: it comes back.
#include <deque>
#include <map>

#include "trs/forwarding_device.h"
#include "trs/hostile_client_rig.h"

namespace braid::trs {
namespace {

using base::kMillisecond;
using base::kSecond;
using testing::HostileClient;
using testing::kClientIp;
using testing::RawConnection;

class HalfOpen : public HostileClient {
 protected:
  void TearDown() override {  // the honest client was cut on purpose
    left.clear();
    world.run_for(11 * kSecond);
    EXPECT_EQ(server->server->sessions().size(), 1u);
  }
  wire::ConnReq next_client(uint16_t connections = 2) {
    wire::ConnReq req = conn_req(0);
    req.cid_num = connections;
    std::memcpy(req.paths_uuid.bytes.data(), &++clients, sizeof(clients));
    return req;
  }
  /// Connection 0 of ever another client, which stays as it is for as long as the server lets it.
  void leave_one(uint16_t connections) {
    if (world.now_ns() < next_ns) return;
    next_ns = world.now_ns() + 10 * kMillisecond;
    refused += std::erase_if(left, [](const auto& each) { return each->reject_errno != 0; });
    std::erase_if(left, [](const auto& each) { return each->decided && each->lost(); });
    left.push_back(raw->make());
    raw->connect(*left.back(), testing::to_vector(wire::bytes_of(next_client(connections))));
  }
  void expect_honest_comes_back_beside(uint16_t connections) {
    const auto flood = [=, this] { leave_one(connections); };
    const auto flood_for = [&](uint64_t for_ns) {
      const uint64_t end_ns = world.now_ns() + for_ns;
      (void)until([&] { return flood(), world.now_ns() >= end_ns; }, for_ns);
    };
    flood_for(kSecond);
    const unsigned before = client->reconnected_calls;
    world.fabric().set_port_up(kClientIp, false);
    flood_for(5 * kSecond);  // the server has ended the session, and others took its place
    EXPECT_EQ(server->server->sessions().size(), 0u);
    world.fabric().set_port_up(kClientIp, true);
    EXPECT_TRUE(until([&] { return flood(), client->reconnected_calls > before; }, 5 * kSecond))
        << client->session->explain();
    EXPECT_GT(clients, 64u) << "it was no flood";
    EXPECT_EQ(refused, 0u) << "the oldest goes, and not the newest";
  }

  uint64_t clients = 0, refused = 0;
  uint64_t next_ns = 0;
  std::deque<std::unique_ptr<RawConnection>> left;
};

TEST_F(HalfOpen, SessionsInNumbersLockOutNobodyWhoComesBack) {
  expect_honest_comes_back_beside(2);
}

TEST_F(HalfOpen, PromisedConnectionsLockOutNobodyWhoComesBack) {
  expect_honest_comes_back_beside(512);
}

/// A device that counts the completion queues of each channel.
class CountingDevice final : public testing::ForwardingDevice {
 public:
  using Counts = std::map<const vhca::CompChannel*, size_t>;
  CountingDevice(std::unique_ptr<vhca::Device> behind, Counts& counts)
      : ForwardingDevice(std::move(behind)), counts_(counts) {}
  base::Result<std::unique_ptr<vhca::Cq>> create_cq(const vhca::CqOptions& options) override {
    ++counts_[options.channel];
    return ForwardingDevice::create_cq(options);
  }

 private:
  Counts& counts_;
};

class ChannelsOfTheServer : public HalfOpen {
 protected:
  ChannelsOfTheServer() {
    process_size.wrap_context = &counts;
    process_size.wrap = [](void* context, const std::string& ip,
                           std::unique_ptr<vhca::Device> made) -> std::unique_ptr<vhca::Device> {
      if (ip == kClientIp) return made;
      return std::make_unique<CountingDevice>(std::move(made),
                                              *static_cast<CountingDevice::Counts*>(context));
    };
  }
  CountingDevice::Counts counts;
};

TEST_F(ChannelsOfTheServer, HaveSixteenConnectionsAtMost) {
  EXPECT_TRUE(until([&] { return leave_one(2), left.size() == 50; }));
  world.run_for(100 * kMillisecond);
  size_t all = 0;
  for (const auto& [channel, count] : counts) {
    EXPECT_LE(count, 16u) << "each bare wake-up is looked for among so many";
    all += count;
  }
  EXPECT_GE(all, 50u);
  EXPECT_LE(counts.size(), all / 16 + 1);
}

/// Sessions that are open, each of another client, all from one address.
class OneAddress : public HostileClient {
 protected:
  OneAddress() {
    adjust_server = [](ServerOptions& options) { options.sessions_max = 8; };
  }
  void TearDown() override {
    all.clear();
    HostileClient::TearDown();
  }
  /// The errno of its refusal.
  int open_one() {
    wire::ConnReq requests[2] = {conn_req(0), conn_req(1)};
    for (wire::ConnReq& req : requests)
      req.paths_uuid.bytes[0] = static_cast<uint8_t>(100 + opened);
    auto first = try_connect(wire::bytes_of(requests[0]));
    if (!first->connection) return first->reject_errno;
    auto second = try_connect(wire::bytes_of(requests[1]));
    EXPECT_TRUE(second->connection);
    cid0 = std::move(first);
    send_info();
    const uint64_t before = store.opened;
    EXPECT_TRUE(until([&] { return store.opened == before + 1; }));
    ++opened;
    all.push_back(std::move(cid0));
    all.push_back(std::move(second));
    return 0;
  }

  size_t opened = 0;
  std::vector<std::unique_ptr<RawConnection>> all;
};

TEST_F(OneAddress, HasThreeQuartersOfTheSessionsAndTheRestIsForOthers) {
  for (int i = 0; i < 6; ++i) ASSERT_EQ(open_one(), 0) << i;
  EXPECT_EQ(open_one(), EDQUOT);
  client->close();
  ASSERT_TRUE(until([&] { return client->closed; }));
  client->session.reset();
  client->opened = false;
  client->open();
  ASSERT_TRUE(until([&] { return client->opened; }, 5 * kSecond)) << "from another address";
}

}  // namespace
}  // namespace braid::trs
