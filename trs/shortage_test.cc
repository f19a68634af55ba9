// A path is lost, and who makes it again has no memory or no descriptors for a while: it is tried
// again until there are some, requests are held and done once, and nothing is left behind.
#include <gmock/gmock.h>

#include "base/test_lines.h"
#include "trs/multipath_rig.h"

namespace braid::trs::testing {
namespace {

using base::kMillisecond;
using base::kSecond;
using base::sim::SimHost;
using base::sim::SimShortage;
using ::testing::HasSubstr;

struct Case {
  const char* name;
  bool at_server;
  bool tcp;
  SimShortage shortage;
  const char* client_says;  // asked why it has no path
  const char* logged;       // by who is short
};

constexpr SimShortage kMemory{.memory = true};
constexpr SimShortage kDescriptors{.descriptors = true};

class Short : public SessionRig {
 protected:
  Short() : Short(std::make_shared<base::TestLines>()) {}
  void connect_all() {
    ASSERT_NO_FATAL_FAILURE(connect());
    ASSERT_NO_FATAL_FAILURE(write_and_wait(0));
    client_segments_ = client_host->segments();
    server_segments_ = server_host->segments();
  }
  void write_and_wait(uint64_t stamp) {
    auto io = client->make_io(Direction::kWrite, stamp * 4096, 4096);
    fill(io->buffer, stamp);
    client->submit(*io);
    ASSERT_TRUE(until([&] { return io->done; }));
    ASSERT_EQ(io->status, base::Errc::kOk);
  }
  void cut(bool on) {
    world.fabric().set_black_hole(kClientIp, kServerIp, on);
    world.fabric().set_black_hole(kServerIp, kClientIp, on);
  }
  void lose_path() {
    const unsigned before = client->disconnected_calls;
    cut(true);
    ASSERT_TRUE(until([&] { return client->disconnected_calls > before; }));
    cut(false);
  }
  bool connected() const { return client->session->paths()[0].connected; }
  void expect_nothing_left_behind() {
    EXPECT_TRUE(until([&] {
      return client_host->segments() == client_segments_ &&
             server_host->segments() == server_segments_;
    })) << client_host->segments()
        << " segments of the client, which had " << client_segments_ << ", "
        << server_host->segments() << " of the server, which had " << server_segments_;
    expect_all_permits_back();
  }
  const std::shared_ptr<base::TestLines> log;

 private:
  explicit Short(std::shared_ptr<base::TestLines> lines)
      : SessionRig(1, 1, {}, lines), log(std::move(lines)) {}
  size_t client_segments_ = 0, server_segments_ = 0;
};

class PathComesBackShort : public Short, public ::testing::WithParamInterface<Case> {};

TEST_P(PathComesBackShort, IsTriedAgainUntilThereIsEnough) {
  process_size.tcp = GetParam().tcp;
  ASSERT_NO_FATAL_FAILURE(connect_all());
  SimHost& host = GetParam().at_server ? *server_host : *client_host;
  host.run_short(GetParam().shortage);
  auto held = client->make_io(Direction::kWrite, 4096, 4096);
  fill(held->buffer, 1);
  cut(true);
  client->submit(*held);
  ASSERT_NO_FATAL_FAILURE(lose_path());
  world.run_for(20 * kSecond);
  EXPECT_FALSE(connected() || held->done);
  EXPECT_GE(host.refusals(), 3u) << "it is tried again";
  EXPECT_THAT(client->session->explain(), HasSubstr(GetParam().client_says));
  EXPECT_GE(log->with(GetParam().logged), 1u) << ::testing::PrintToString(log->all);
  if (!GetParam().at_server) {
    EXPECT_EQ(log->with("is tried again"), 1u) << "once, however often it is tried";
  }
  host.enough();
  ASSERT_TRUE(until([&] { return connected() && held->done; })) << client->session->explain();
  EXPECT_EQ(held->status, base::Errc::kOk);
  EXPECT_EQ(held->completions, 1u);
  EXPECT_EQ(std::count(store.write_log.begin(), store.write_log.end(), 4096u), 1);
  EXPECT_TRUE(filled(std::span(store.bytes).subspan(4096, 4096), 1));
  ASSERT_NO_FATAL_FAILURE(write_and_wait(2));
  expect_nothing_left_behind();
}

constexpr Case kCases[] = {
    {"client_memory", false, false, kMemory,
     "cannot create memory for trs headers: Cannot allocate memory",
     "path to 10.0.0.1:1234 cannot be made, and is tried again: cannot create memory for trs "
     "headers: Cannot allocate memory"},
    {"client_descriptors", false, false, kDescriptors,
     "cannot create memory for trs headers: Too many open files",
     "path to 10.0.0.1:1234 cannot be made, and is tried again: cannot create memory for trs "
     "headers: Too many open files"},
    {"client_memory_tcp", false, true, kMemory,
     "cannot create memory for trs headers: Cannot allocate memory",
     "path to 10.0.0.1:1234 cannot be made, and is tried again: cannot create memory for trs "
     "headers: Cannot allocate memory"},
    {"server_memory", true, false, kMemory, "the server has no memory",
     "no memory for a protection domain: Cannot allocate memory"},
    {"server_descriptors", true, false, kDescriptors, "",
     "gets no path for now: cannot create memory for trs chunks: Too many open files"},
    {"server_memory_tcp", true, true, kMemory, "",
     "cannot accept a TCP connection: Cannot allocate memory"},
    {"server_descriptors_tcp", true, true, kDescriptors, "",
     "cannot accept a TCP connection: Too many open files"},
};
INSTANTIATE_TEST_SUITE_P(Sides, PathComesBackShort, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return std::string(each.param.name); });

/// Some of what a path is made of can be had: what was made by then is given back, or the tables of
/// the adapters, which are small here, would fill.
class PathComesBackInParts : public Short, public ::testing::WithParamInterface<ChunkGuard> {};

TEST_P(PathComesBackInParts, AndLeavesNothingBehind) {
  process_size.registrations_max = 64;
  adjust_server = [](ServerOptions& options) { options.guard = GetParam(); };
  ASSERT_NO_FATAL_FAILURE(connect_all());
  SimShortage shortage{.memory = true, .descriptors = true};
  for (uint64_t round = 0; round < 120; ++round) {
    shortage.refused_in = 2 + round % 6;
    shortage.seed = round;
    (round / 6 % 2 == 0 ? server_host : client_host)->run_short(shortage);
    ASSERT_NO_FATAL_FAILURE(lose_path());
    world.run_for(3 * kSecond);
    server_host->enough();
    client_host->enough();
    ASSERT_TRUE(until([&] { return connected(); })) << round << client->session->explain();
    ASSERT_NO_FATAL_FAILURE(write_and_wait(round + 1));
  }
  EXPECT_GT(client_host->refusals(), 60u);
  EXPECT_GT(server_host->refusals(), 60u);
  for (const char* words : {"no memory for a queue pair", "no memory for a registration of memory",
                            "no memory for a completion queue"}) {
    EXPECT_GE(log->with(words), 1u) << words;
  }
  expect_nothing_left_behind();
}

constexpr ChunkGuard kShortageGuards[] = {ChunkGuard::kNone, ChunkGuard::kCopy,
                                          ChunkGuard::kWindows};
INSTANTIATE_TEST_SUITE_P(Guard, PathComesBackInParts, ::testing::ValuesIn(kShortageGuards),
                         [](const auto& each) { return std::string(to_string(each.param)); });

/// Of two paths one goes on while the other one cannot be made.
class OneOfTwoComesBackShort : public MultipathRig, public ::testing::WithParamInterface<bool> {};

TEST_P(OneOfTwoComesBackShort, AndTheOtherOneGoesOn) {
  ASSERT_NO_FATAL_FAILURE(connect_both());
  SimHost& host = GetParam() ? *server_host : *client_host;
  host.run_short(kMemory);
  cut_a(true);
  const auto writes = make_writes(8);
  submit_all(writes);
  ASSERT_TRUE(until([&] { return all_done(writes) && up() == 1; }));
  expect_written_once(writes);
  cut_a(false);
  world.run_for(10 * kSecond);
  EXPECT_EQ(up(), 1u);
  EXPECT_EQ(client->disconnected_calls, 0u);
  EXPECT_GE(host.refusals(), 3u);
  EXPECT_THAT(client->session->paths()[0].why,
              HasSubstr(GetParam() ? "the server has no memory"
                                   : "cannot create memory for trs headers: Cannot allocate"));
  host.enough();
  EXPECT_TRUE(until_up(2));
}

INSTANTIATE_TEST_SUITE_P(Sides, OneOfTwoComesBackShort, ::testing::Bool(), [](const auto& each) {
  return std::string(each.param ? "at_server" : "at_client");
});

}  // namespace
}  // namespace braid::trs::testing
