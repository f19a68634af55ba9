// News: sizes and closed devices are pushed; older versions are asked, or ask, each second.
#include <gtest/gtest.h>

#include "bnbd/test_fake_server.h"
#include "bnbd/test_rig.h"
#include "trs/wire.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;
using test::ClientNode;

constexpr uint32_t kOlder = trs::kAllFeatures & ~trs::wire::kFeatureNotices;
constexpr uint64_t kNewsSize = 4 << 20;

class News : public test::ServedRig {
 protected:
  void resize(uint64_t size_bytes) {
    ASSERT_TRUE(await(*server_node, server->resize("disk.img", size_bytes, true)).ok());
  }
  bool has_size(const RemoteDevice& device, uint64_t size_bytes, uint64_t limit_ns) {
    return world.run_until([&] { return device.info().size_bytes == size_bytes; }, limit_ns);
  }
  /// Control messages that were answered.
  static uint64_t questions(const ClientNode& client) {
    uint64_t sum = 0;
    for (const trs::PathStatus& path : client.session->paths()) {
      sum += path.connections.front().reads;
    }
    return sum;
  }
};

TEST_F(News, of_sizes_are_pushed_to_all_who_have_the_device_open) {
  client_reactors = 2;
  ClientNode& client = add_client();
  ClientNode& other = add_client("other");
  RemoteDevice& device = open(client);
  RemoteDevice& reader = open(other, "disk.img", wire::AccessMode::kReadOnly);
  for (uint64_t size_bytes = 2 * kNewsSize; size_bytes > kNewsSize / 2; size_bytes /= 2) {
    world.run_for(3 * kSecond);
    resize(size_bytes);
    EXPECT_TRUE(has_size(device, size_bytes, 20 * kMillisecond)) << size_bytes;
    EXPECT_TRUE(has_size(reader, size_bytes, 20 * kMillisecond)) << size_bytes;
  }
}

TEST_F(News, of_closed_devices_are_pushed) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  world.run_for(3 * kSecond);
  ASSERT_TRUE(server->force_close({"disk.img", "client"}).ok());
  server_node->home().wake();
  EXPECT_TRUE(
      world.run_until([&] { return device.state() == RemoteState::kRevoked; }, 20 * kMillisecond));
}

TEST_F(News, are_not_asked_for_while_there_are_none) {
  ClientNode& client = add_client();
  open(client);
  const uint64_t before = questions(client);
  world.run_for(20 * kSecond);
  EXPECT_EQ(questions(client), before);
  EXPECT_TRUE(server->session_statuses().front().takes_notices);
}

TEST_F(News, of_many_changes_are_asked_for_once) {
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  const uint64_t before = questions(client);
  client.host.hang(client.home());
  for (int i = 0; i < 5; ++i) resize((2 + i % 2) * kNewsSize);
  client.host.unhang(client.home());
  EXPECT_TRUE(has_size(device, 2 * kNewsSize, 20 * kMillisecond));
  EXPECT_EQ(questions(client), before + 1);
}

TEST_F(News, that_a_lost_path_was_to_bring_come_by_another) {
  client_paths = 2;
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  const auto up = [&] {
    const auto paths = client.session->paths();
    return std::count_if(paths.begin(), paths.end(),
                         [](const trs::PathStatus& path) { return path.connected; });
  };
  ASSERT_TRUE(until([&] { return up() == 2; }));
  for (const char* ip : {"10.0.1.1", "10.1.1.1"}) {
    const uint64_t size_bytes = device.info().size_bytes + kNewsSize;
    world.fabric().set_black_hole(test::kServerIp, ip, true);
    resize(size_bytes);
    EXPECT_TRUE(has_size(device, size_bytes, 3 * kSecond)) << ip;
    world.fabric().set_black_hole(test::kServerIp, ip, false);
    ASSERT_TRUE(until([&] { return up() == 2; }));
  }
  EXPECT_EQ(client.session->statistics().reconnects, 0u);
}

TEST_F(News, are_asked_for_each_second_by_an_older_client) {
  session_options.transport.features = kOlder;
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  EXPECT_FALSE(server->session_statuses().front().takes_notices);
  const uint64_t before = questions(client);
  world.run_for(10 * kSecond);
  EXPECT_GE(questions(client), before + 9);
  resize(2 * kNewsSize);
  EXPECT_TRUE(has_size(device, 2 * kNewsSize, 2 * kSecond));
}

TEST_F(News, are_asked_for_each_second_of_an_older_server_until_it_comes_back_as_a_newer_one) {
  kill_server();
  exports.transport.features = kOlder;
  start_server();
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  resize(2 * kNewsSize);
  EXPECT_TRUE(has_size(device, 2 * kNewsSize, 2 * kSecond));
  kill_server();
  exports.transport.features = trs::kAllFeatures;
  start_server();
  ASSERT_TRUE(until([&] {
    return device.state() == RemoteState::kOpen && client.session->statistics().reconnects == 1;
  }));
  const uint64_t before = questions(client);
  world.run_for(10 * kSecond);
  EXPECT_EQ(questions(client), before);
  resize(3 * kNewsSize);
  EXPECT_TRUE(has_size(device, 3 * kNewsSize, 20 * kMillisecond));
}

class NewsOfAFake : public test::FakeRig {
 protected:
  NewsOfAFake() { client = &add_client(); }
  void raise() {
    fake->home().post([this] { fake->raise_notices(); });
    fake->home().wake();
  }
  bool asked(unsigned count, uint64_t limit_ns) {
    return world.run_until([&, count] { return script.news_asked >= count; }, limit_ns);
  }
  void expect_pauses(RemoteDevice& device) {
    raise();
    world.run_for(2 * kSecond);
    EXPECT_GT(script.news_asked, 100u);
    EXPECT_LE(script.news_asked, 201u);
    EXPECT_EQ(write(*client, device, 0, 4096, 1), Errc::kOk);
  }
  ClientNode* client = nullptr;
};

TEST_F(NewsOfAFake, that_never_end_cost_a_question_each_10_ms) {
  RemoteDevice& device = open(*client);
  script.floods = true;
  expect_pauses(device);
}

TEST_F(NewsOfAFake, that_fill_each_answer_cost_a_question_each_10_ms) {
  RemoteDevice& device = open(*client);
  for (uint32_t i = 0; i < wire::kNewsItemsMax; ++i) {
    script.news.items.push_back({7 + i, wire::NewsKind::kResized, 1 << 20});
  }
  expect_pauses(device);
}

TEST_F(NewsOfAFake, that_were_told_as_nonsense_are_asked_for_again_after_a_second) {
  RemoteDevice& device = open(*client);
  script.odd_news = true;
  raise();
  ASSERT_TRUE(asked(1, 20 * kMillisecond));
  script.odd_news = false;
  script.news = {1, {{7, wire::NewsKind::kResized, 2 << 20}}};
  EXPECT_TRUE(world.run_until([&] { return device.info().size_bytes == 2u << 20; }, 2 * kSecond));
  EXPECT_EQ(script.news_asked, 2u);
}

/// News of the device that is being opened, twice: the server forgets what a question has seen.
class NewsOfAnOpening : public NewsOfAFake {
 protected:
  RemoteDevice& open_behind(const wire::DeviceNews& told) {
    open(*client);
    script.hang_open = "second";
    const auto opening = begin_open(*client, "second");
    EXPECT_TRUE(until([&] { return script.opens == 2; }));
    script.news = {1, {told}};
    for (unsigned count = 1; count <= 2; ++count) {
      raise();
      EXPECT_TRUE(asked(count, 20 * kMillisecond));
      world.run_for(20 * kMillisecond);
    }
    fake->home().post([this] { fake->release_opens(); });
    fake->home().wake();
    EXPECT_TRUE(until([&] { return opening->has_value(); }));
    return *client->devices.emplace_back(std::move(**opening).value());
  }
};

TEST_F(NewsOfAnOpening, that_it_has_another_size_overtake_the_answer_and_are_not_lost) {
  const RemoteDevice& device = open_behind({8, wire::NewsKind::kResized, 2 << 20});
  EXPECT_TRUE(world.run_until([&] { return device.info().size_bytes == 2u << 20; }, kSecond));
  raise();
  ASSERT_TRUE(asked(4, kSecond)) << "by and by the server is told that it may forget them";
  EXPECT_EQ(script.news_seen, 1u);
}

TEST_F(NewsOfAnOpening, that_it_was_closed_overtake_the_answer_and_are_not_lost) {
  const RemoteDevice& device = open_behind({8, wire::NewsKind::kClosed, 0});
  EXPECT_TRUE(world.run_until([&] { return device.state() == RemoteState::kRevoked; }, kSecond));
}

class NewsOfARemap : public NewsOfAFake {
 protected:
  /// A device that the operator had closed, and whose OPEN is at the server without an answer.
  RemoteDevice& begin_remap() {
    RemoteDevice& device = open(*client);
    script.news = {1, {{7, wire::NewsKind::kClosed, 0}}};
    raise();
    EXPECT_TRUE(until([&] { return device.state() == RemoteState::kRevoked; }));
    script.hang_open = "disk.img";
    client->home().post([this, &device] {
      client->home().spawn(
          [](RemoteDevice& its) -> base::Task<void> { (void)co_await its.remap(); }(device));
    });
    EXPECT_TRUE(until([&] { return script.opens == 2; }));
    return device;
  }
};

TEST_F(NewsOfARemap, end_with_its_process) {
  begin_remap();
  client->host.kill();
  raise();
  world.run_for(kSecond);
}

TEST_F(NewsOfARemap, that_overtake_its_answer_are_not_lost) {
  RemoteDevice& device = begin_remap();
  script.news = {2, {{7, wire::NewsKind::kResized, 2 << 20}}};
  const unsigned before = script.news_asked;
  for (unsigned count = 1; count <= 2; ++count) {
    raise();
    EXPECT_TRUE(asked(before + count, 20 * kMillisecond));
    world.run_for(20 * kMillisecond);
  }
  fake->home().post([this] { fake->release_opens(); });
  fake->home().wake();
  EXPECT_TRUE(world.run_until([&] { return device.info().size_bytes == 2u << 20; }, kSecond));
  EXPECT_EQ(device.state(), RemoteState::kOpen);
}

TEST_F(NewsOfAFake, that_come_while_devices_are_opened_again_are_asked_for_when_the_path_is_up) {
  RemoteDevice& device = open(*client);
  script.hang_open = "disk.img";
  restart_fake();
  ASSERT_TRUE(until([&] { return script.opens == 2; }));
  script.news = {1, {{7, wire::NewsKind::kResized, 2 << 20}}};
  raise();
  world.run_for(200 * kMillisecond);
  EXPECT_EQ(script.news_asked, 0u);
  fake->home().post([this] { fake->release_opens(); });
  fake->home().wake();
  EXPECT_TRUE(world.run_until([&] { return device.info().size_bytes == 2u << 20; }, kSecond));
}

}  // namespace
}  // namespace braid::bnbd
