// Lent memory that a session begins to use while its paths come and go: whatever path carries a
// read, it has registered what the read is answered from. The sessions have one reactor or two a
// side, and each kind of chunk guard.
#include <tuple>

#include "trs/multipath_rig.h"

namespace braid::trs::testing {
namespace {

using base::kMillisecond;
using ::testing::HasSubstr;

/// How a use of memory went.
struct AskedOf {
  std::optional<base::Status> end;
};
base::Task<void> ask(ServerSession& session, const vhca::Mr& memory, AskedOf& asked) {
  base::Status status = co_await session.use_memory(memory);
  asked.end = std::move(status);
}

class LentMemoryTest : public MultipathRig,
                       public ::testing::WithParamInterface<std::tuple<size_t, ChunkGuard>> {
 protected:
  LentMemoryTest() : MultipathRig(std::get<0>(GetParam())) {
    adjust_server = [](ServerOptions& options) { options.guard = std::get<1>(GetParam()); };
    process_size.registrations_max = 1024;
  }
  void SetUp() override {
    connect_both();
    fill(store.bytes, 3);
    for (size_t i = 0; i < 4 * reactor_count; ++i) {
      reads.push_back(client->make_io(Direction::kRead, 0, 9000));
      reads.back()->op.from_store = 1;
    }
  }
  ServerSession& session() { return *server->server->sessions().front(); }
  std::unique_ptr<vhca::Mr> lend() {
    return std::move(*server->server->register_memory(store.bytes.data(), store.bytes.size()));
  }
  void use(const vhca::Mr& memory, AskedOf& asked) {
    server->home().spawn(ask(session(), memory, asked));
    server->home().wake();
  }
  void read_some() {
    submit_all(reads);
    ASSERT_TRUE(until([&] { return all_done(reads); }));
    for (const auto& read : reads) {
      ASSERT_EQ(read->status, base::Errc::kOk);
      ASSERT_TRUE(filled(read->buffer, 3));
      std::fill(read->buffer.begin(), read->buffer.end(), std::byte{0});
    }
  }
  std::vector<std::unique_ptr<Io>> reads;
};

TEST_P(LentMemoryTest, IsThereOnEachPathThatCarriesARead) {
  world.timing().work_min_ns = 0;
  world.timing().work_max_ns = 5 * kMillisecond;
  std::vector<std::unique_ptr<vhca::Mr>> kept;
  for (uint64_t round = 0; round < 60; ++round) {
    const size_t path = round % 2;
    ASSERT_TRUE(client->session->disconnect_path(path).ok());
    ASSERT_TRUE(until_up(1));
    ASSERT_TRUE(client->session->reconnect_path(path).ok());
    client->home().wake();
    world.run_for(round * kMillisecond / 2);  // from well before the path has come back to after it
    auto fresh = lend();
    AskedOf asked;
    use(*fresh, asked);
    ASSERT_TRUE(until([&] { return asked.end.has_value(); }));
    ASSERT_TRUE(asked.end->ok()) << asked.end->error().message();
    ASSERT_TRUE(session().uses_memory(*fresh));
    kept.push_back(std::exchange(server->store_mr, std::move(fresh)));
    ASSERT_NO_FATAL_FAILURE(read_some()) << "round " << round;
    ASSERT_TRUE(until_up(2)) << "round " << round;
    ASSERT_NO_FATAL_FAILURE(read_some()) << "round " << round;
    // Half of them are taken back, so that slots are used again.
    if (round % 2 == 1) kept.erase(kept.begin());
  }
}

// What there is no room for on a path that is away is copied, as if it were not away.
TEST_P(LentMemoryTest, ThatIsUsedWhileAPathIsAwayDoesNotKeepItAway) {
  std::vector<std::unique_ptr<vhca::Mr>> used;
  const auto use_one_more = [&] {
    used.push_back(lend());
    AskedOf asked;
    use(*used.back(), asked);
    EXPECT_TRUE(until([&] { return asked.end.has_value(); }));
    const bool granted = asked.end->ok();
    if (!granted) used.pop_back();
    return granted;
  };
  while (use_one_more()) ASSERT_LT(used.size(), 1000u) << "there is no bound";
  ASSERT_GT(used.size(), 10u);
  used.resize(used.size() - 3);
  ASSERT_TRUE(client->session->disconnect_path(1).ok());
  ASSERT_TRUE(until([&] { return session().paths() == 1; }));
  const size_t before = used.size();
  while (use_one_more()) ASSERT_LT(used.size(), 1000u) << "there is no bound";
  EXPECT_GT(used.size(), before) << "there was room for both paths";
  ASSERT_TRUE(client->session->reconnect_path(1).ok());
  client->home().wake();
  ASSERT_TRUE(until_up(2));
}

TEST_P(LentMemoryTest, IsNotWaitedForOnAPathThatEnds) {
  world.timing().work_min_ns = world.timing().work_max_ns = 500 * kMillisecond;
  const auto fresh = lend();
  AskedOf asked;
  use(*fresh, asked);
  world.run_for(100 * kMillisecond);
  ASSERT_FALSE(asked.end.has_value());
  EXPECT_FALSE(session().uses_memory(*fresh));
  ASSERT_TRUE(client->session->disconnect_path(1).ok());
  ASSERT_TRUE(until([&] { return asked.end.has_value(); }));
  EXPECT_TRUE(asked.end->ok());
  read_some();
}

TEST_P(LentMemoryTest, ThatIsTakenBackWhileItIsRegisteredIsUsedByNobody) {
  world.timing().work_min_ns = world.timing().work_max_ns = 100 * kMillisecond;
  auto fresh = lend();
  AskedOf asked;
  use(*fresh, asked);
  world.run_for(10 * kMillisecond);
  fresh.reset();
  ASSERT_TRUE(until([&] { return asked.end.has_value(); }));
  EXPECT_EQ(asked.end->code(), base::Errc::kCanceled);
  fresh = lend();  // in the same slot, while the worker has the former one
  AskedOf again;
  use(*fresh, again);
  ASSERT_TRUE(until([&] { return again.end.has_value(); }));
  EXPECT_TRUE(again.end->ok());
  server->store_mr.swap(fresh);
  read_some();
}

TEST_P(LentMemoryTest, TakesNoMoreThanHalfOfTheDevicesRegistrations) {
  world.timing().work_min_ns = world.timing().work_max_ns = 0;
  std::vector<std::unique_ptr<vhca::Mr>> lent;
  std::vector<base::Errc> ends;
  for (int i = 0; i < 600; ++i) {
    lent.push_back(lend());
    AskedOf asked;
    use(*lent.back(), asked);
    ASSERT_TRUE(until([&] { return asked.end.has_value(); }));
    ends.push_back(asked.end->code());
    if (asked.end->ok()) continue;
    EXPECT_THAT(asked.end->error().message(), HasSubstr("half of the registrations"));
    EXPECT_FALSE(session().uses_memory(*lent.back()));
  }
  // Of each of the two devices, 512, the store among them.
  EXPECT_EQ(std::count(ends.begin(), ends.end(), base::Errc::kOk), 511);
  EXPECT_EQ(ends.back(), base::Errc::kNoMemory);
  EXPECT_EQ(up(), 2u) << "no path was lost for it";
  read_some();
  // What is given back is there for others.
  lent.front().reset();
  AskedOf asked;
  use(*lent.back(), asked);
  ASSERT_TRUE(until([&] { return asked.end.has_value(); }));
  EXPECT_TRUE(asked.end->ok());
}

constexpr ChunkGuard kGuards[] = {ChunkGuard::kNone, ChunkGuard::kCopy, ChunkGuard::kWindows};
INSTANTIATE_TEST_SUITE_P(Kinds, LentMemoryTest,
                         ::testing::Combine(::testing::Values(1u, 2u),
                                            ::testing::ValuesIn(kGuards)),
                         [](const auto& each) {
                           return std::to_string(std::get<0>(each.param)) + "_" +
                                  std::string(to_string(std::get<1>(each.param)));
                         });

}  // namespace
}  // namespace braid::trs::testing
