// Windows are many, and a device has a table for them and all memory (docs/chunk-keys.md): who
// comes when they are used up is given copies, and everybody can still register memory.
#include "trs/group/group_rig.h"

namespace braid::trs::testing {
namespace {

class GuardedTable : public GroupRig {
 protected:
  static constexpr uint32_t kDepth = 512;
  static constexpr size_t kSessions = 10;
  GuardedTable() {
    adjust_server = [](ServerOptions& options) {
      options.guard = ChunkGuard::kWindows;
      options.queue_depth = kDepth;
      options.max_io_bytes = 4096;
    };
  }
  size_t count(ChunkGuard guard) const {
    size_t found = 0;
    for (ServerSession* session : servers[0]->server->sessions()) {
      for (const ChunkGuard each : session->path_guards()) found += each == guard ? 1 : 0;
    }
    return found;
  }
};

TEST_F(GuardedTable, WhoComesWhenWindowsAreUsedUpIsGivenCopies) {
  connect(1);
  for (size_t i = 1; i < kSessions; ++i) client->open(i, ip_of(0), {});
  ASSERT_TRUE(until([&] {
    return std::all_of(client->sessions.begin(), client->sessions.end(),
                       [](const auto& session) { return session != nullptr; });
  }));
  // Each has some memory besides, so that the last one's windows do not fit.
  const size_t windows = static_cast<size_t>(servers[0]->device->query().max_mw) / kDepth - 1;
  ASSERT_LT(windows, kSessions);
  EXPECT_EQ(count(ChunkGuard::kWindows), windows);
  EXPECT_EQ(count(ChunkGuard::kCopy), kSessions - windows);

  // What those that have windows do is done as before, and by the others, too.
  for (size_t i = 0; i < kSessions; ++i) {
    Group& group = make_group({i});
    const auto io = client->make_io(i * 4096, 4096);
    fill(io->buffer, i);
    client->submit(group, *io);
    ASSERT_TRUE(until([&] { return io->done(); }));
    EXPECT_TRUE(io->request.all_ok());
    EXPECT_TRUE(stored(0, *io));
  }
  const auto pd = std::move(*servers[0]->device->alloc_pd());
  std::vector<std::unique_ptr<vhca::Mr>> others;
  for (int i = 0; i < 3000; ++i) {
    auto mr = pd->reg_mr(disks[0]->bytes.data(), 4096, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_TRUE(mr.ok()) << i << ": " << mr.error().message();
    others.push_back(std::move(*mr));
  }
}

}  // namespace
}  // namespace braid::trs::testing
