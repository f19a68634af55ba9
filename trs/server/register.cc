// Path: its memory becomes known to its device.
//
// A device brings in and pins every page that it registers, which takes as long as there are pages.
// So it is done on a worker thread: the home reactor has the heartbeats and requests of others. The
// work owns what it touches, and the path does not end before it has come back, so that the device
// outlives it.
#include <functional>
#include <optional>

#include "trs/server/path.h"
#include "trs/server/server_impl.h"
#include "trs/server/session.h"

namespace braid::trs::server {

namespace {

/// What goes to the worker. Goes in the reverse order: what was made, then what it is made of.
template <typename T>
struct Job {
  std::function<base::Result<T>()> make;
  std::optional<base::Result<T>> made;
};

}  // namespace

template <typename T>
base::Task<base::Result<T>> Path::on_worker(std::function<base::Result<T>()> make) {
  if (!live()) co_return base::make_error(base::Errc::kCanceled, "the path ends");
  auto job = std::make_shared<Job<T>>();
  job->make = std::move(make);
  auto work = [job] { job->made.emplace(job->make()); };
  on_worker_ = true;
  co_await home_.offload(std::move(work));
  on_worker_ = false;
  if (!live()) queue_quiet();  // counted by close(); the path goes in a later turn
  co_return std::move(*job->made);
}

/// `memory`, if given, stays until it is done.
base::Task<base::Result<std::unique_ptr<vhca::Mr>>> Path::register_memory(
    std::byte* address, uint64_t length_bytes, int access, std::shared_ptr<void> memory) {
  std::function<base::Result<std::unique_ptr<vhca::Mr>>()> make =
      [pd = pd_, address, length_bytes, access, memory = std::move(memory)] {
        return pd->reg_mr(address, length_bytes, access);
      };
  return on_worker(std::move(make));
}

/// kCanceled: the path ends. What there is goes with it.
base::Task<base::Status> Path::register_all() {
  if (guard_ != ChunkGuard::kNone) BRAID_CO_CHECK(co_await make_landing());
  const std::shared_ptr<base::Segment> chunks = session_.chunks();
  const int remote = guard_ == ChunkGuard::kNone ? IBV_ACCESS_REMOTE_WRITE : 0;
  BRAID_CO_TRY(chunks_mr_, co_await register_memory(chunks->data(), chunks->size(),
                                                    IBV_ACCESS_LOCAL_WRITE | remote, chunks));
  while (bringing_up()) {
    const LentMemory* const memory = not_borrowed();
    if (memory == nullptr) co_return base::ok_status();
    const std::weak_ptr<char> stays = memory->alive();
    const uint32_t slot = memory->slot();
    auto made =
        co_await register_memory(memory->address, memory->length_bytes, memory->access, nullptr);
    if (stays.expired() || lent_[slot]) continue;  // taken back, or borrow() was faster
    if (!made.ok()) co_return made.error();
    lent_[slot] = std::move(*made);
  }
  co_return base::make_error(base::Errc::kCanceled, "the path ends");
}

const LentMemory* Path::not_borrowed() const {
  for (const LentMemory* memory : session_.server().lent()) {
    if (memory != nullptr && !lent_[memory->slot()]) return memory;
  }
  return nullptr;
}

/// What is done without windows, though they were asked for, is told.
base::Task<base::Status> Path::make_landing() {
  if (guard_ == ChunkGuard::kCopy && session_.server().options().guard == ChunkGuard::kWindows) {
    session_.server().say_of(
        peer_text_, base::LogLevel::kInfo,
        "session '{}' from {}: chunks are copied instead of closed: {}", session_.name(),
        peer_text_,
        session_.lends() ? "its I/O connections lend each other permits, and a window is of one"
                         : "its client does not know keys that change");
  }
  auto made = co_await create_landing();
  if (!made.ok() && guard_ == ChunkGuard::kWindows && bringing_up()) {
    session_.server().complain(
        peer_text_, fmt::format("session '{}' from {}: chunks are copied instead of closed: {}",
                                session_.name(), peer_text_, made.error().message()));
    guard_ = ChunkGuard::kCopy;
    made = co_await create_landing();
  }
  if (!made.ok()) co_return made.error();
  landing_ = std::move(*made);
  co_return base::ok_status();
}

base::Task<base::Result<std::unique_ptr<Landing>>> Path::create_landing() {
  const LandingOptions options{session_.queue_depth(), session_.server().chunk_bytes()};
  std::function<base::Result<std::unique_ptr<Landing>>()> make = [&host = home_.host(), pd = pd_,
                                                                  guard = guard_, options] {
    return Landing::create(host, *pd, guard, options);
  };
  return on_worker(std::move(make));
}

base::Status Path::borrow(const LentMemory& memory) {
  BRAID_TRY(lent_[memory.slot()], pd_->reg_mr(memory.address, memory.length_bytes, memory.access));
  return {};
}

}  // namespace braid::trs::server
