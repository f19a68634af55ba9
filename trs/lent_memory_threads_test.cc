// Lent memory between threads: reads run on all reactors of both sides, by two paths, while the
// home reactor of the server lends further memory and one path after the other is made anew. Run it
// under the thread sanitizer.
#include <atomic>
#include <cstring>

#include "trs/threads_rig.h"

namespace braid::trs::testing {
namespace {

using base::Errc;

constexpr size_t kStoreBytes = 256 << 10;
constexpr uint32_t kReadBytes = 8192;
constexpr size_t kReadersPerReactor = 2;

/// Answers each read from the memory that was lent last.
class LendingUser final : public ServerUser {
 public:
  LendingUser() : bytes(kStoreBytes) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 13 >> 4);
  }
  void session_opened(ServerSession&) override {}
  void session_closed(ServerSession&) override {}
  void request(ServerRequest& request) override {
    uint64_t offset = 0;
    std::memcpy(&offset, request.user_header.data(), sizeof(offset));
    const vhca::Mr* const memory = lent.load(std::memory_order_acquire);
    std::byte* const at = bytes.data() + offset;
    const DataBuffer source{memory, at, static_cast<uint32_t>(request.data.size())};
    if (memory == nullptr) std::memcpy(request.data.data(), at, request.data.size());
    request.answer(Errc::kOk, memory != nullptr ? &source : nullptr);
  }
  std::vector<std::byte> bytes;
  std::atomic<const vhca::Mr*> lent{nullptr};
};

struct Reader : PermitWaiter {
  ClientRequest request;
  ClientQueue* queue = nullptr;
  const std::byte* store = nullptr;
  uint64_t offset = 0;
  uint64_t wrong = 0, done = 0;
  std::atomic<bool>* stop = nullptr;
  std::atomic<unsigned>* running = nullptr;

  void start() {
    request.direction = Direction::kRead;
    request.user_header = std::as_bytes(std::span(&offset, 1));
    request.context = this;
    PermitWaiter::context = this;
    permit_free = [](PermitWaiter& self) { static_cast<Reader*>(self.context)->submit(); };
    request.done = [](ClientRequest& self, Errc status) {
      static_cast<Reader*>(self.context)->ended(status);
    };
    submit();
  }
  void submit() {
    request.permit = queue->acquire();
    if (!request.permit) return queue->wait_for_permit(*this);
    queue->submit(request);
  }
  void ended(Errc status) {
    ++done;
    const auto* const got = request.data.address;
    if (status != Errc::kOk || std::memcmp(got, store + offset, kReadBytes) != 0) ++wrong;
    std::memset(request.data.address, 0, kReadBytes);
    offset = (offset + 3 * 512) % (kStoreBytes - kReadBytes);
    if (stop->load()) {
      running->fetch_sub(1);
      return;
    }
    submit();
  }
};

class LentMemoryThreads : public ThreadsRig, public ::testing::TestWithParam<ChunkGuard> {
 protected:
  LentMemoryThreads()
      : ThreadsRig(user, {.client_reactors = 2,
                          .server_reactors = 2,
                          .memory_bytes = 2 * kReadersPerReactor * kReadBytes,
                          .guard = GetParam()}) {}
  ~LentMemoryThreads() override {
    on(server_threads_[0], [&] { lent.clear(); });
    take_down();
  }
  void start_readers() {
    running = 2 * kReadersPerReactor;
    for (size_t i = 0; i < 2 * kReadersPerReactor; ++i) {
      auto& reader = *readers.emplace_back(std::make_unique<Reader>());
      reader.queue = &session_->queue(i % 2);
      reader.store = user.bytes.data();
      reader.stop = &stop;
      reader.running = &running;
      reader.request.data = {mr_.get(), memory_->data() + i * kReadBytes, kReadBytes};
      on(client_threads_[i % 2], [&] { reader.start(); });
    }
  }
  base::Status lend_more() {
    on(server_threads_[0], [&] {
      auto made = server_->register_memory(user.bytes.data(), user.bytes.size());
      BRAID_ASSERT(made.ok());
      lent.push_back(std::move(*made));
    });
    base::Status status = await_on<base::Status>(
        server_threads_[0], [&] { return server_->sessions().front()->use_memory(*lent.back()); });
    if (status.ok()) user.lent.store(lent.back().get(), std::memory_order_release);
    return status;
  }

  LendingUser user;
  std::vector<std::unique_ptr<vhca::Mr>> lent;
  std::vector<std::unique_ptr<Reader>> readers;
  std::atomic<bool> stop{false};
  std::atomic<unsigned> running{0};
};

TEST_P(LentMemoryThreads, IsThereOnEachPathThatCarriesARead) {
  ASSERT_NO_FATAL_FAILURE(open(/*two_paths=*/true));
  wait_until("the second path", [&] { return connected(1); });
  start_readers();
  for (size_t round = 0; round < 12; ++round) {
    const size_t path = round % 2;
    on(client_threads_[0], [&] { ASSERT_TRUE(session_->disconnect_path(path).ok()); });
    wait_until("a path's end", [&] { return !connected(path); });
    on(client_threads_[0], [&] { ASSERT_TRUE(session_->reconnect_path(path).ok()); });
    for (size_t i = 0; i < 1 + round % 3; ++i) {
      const base::Status status = lend_more();
      ASSERT_TRUE(status.ok()) << status.error().message();
    }
    wait_until("the path to come back", [&] { return connected(path); });
  }
  stop = true;
  wait_until("the readers' end", [&] { return running == 0; });
  for (const auto& reader : readers) {
    EXPECT_EQ(reader->wrong, 0u);
    EXPECT_GT(reader->done, 0u);
  }
  close();
}

INSTANTIATE_TEST_SUITE_P(Guard, LentMemoryThreads,
                         ::testing::Values(ChunkGuard::kNone, ChunkGuard::kCopy,
                                           ChunkGuard::kWindows),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace braid::trs::testing
