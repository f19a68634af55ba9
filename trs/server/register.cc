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
  co_return co_await register_lent();
}

/// What the session uses, one stretch after the other. What it has only been asked for is refused
/// if it cannot be had; what it answers from already this path must have, or it cannot be.
base::Task<base::Status> Path::register_lent() {
  while (live()) {
    const LentMemory* const memory = session_.lent().missing(lent_);
    if (memory == nullptr) {
      has_lent_ = true;
      lent_.whole();
      co_return base::ok_status();
    }
    const std::weak_ptr<char> stays = memory->alive();
    const uint32_t slot = memory->slot();
    auto made = co_await register_one(*memory);
    if (made.ok() && !stays.expired() && session_.lent().find(slot) != nullptr) {
      lent_.put(slot, session_.lent().answered(slot), std::move(*made));
      session_.lent().changed()->notify_all();
      continue;
    }
    if (made.ok() || stays.expired() || !live()) continue;  // nobody wants it any more
    const LentUse* const use = session_.lent().find(slot);
    if (use != nullptr && use->granted) co_return made.error();
    session_.end_use(slot, made.error());
  }
  co_return base::make_error(base::Errc::kCanceled, "the path ends");
}

base::Task<base::Result<std::unique_ptr<vhca::Mr>>> Path::register_one(const LentMemory& memory) {
  if (!lent_.room(session_.lent().answered(memory.slot()))) {
    co_return base::make_error(base::Errc::kNoMemory,
                               "half of the registrations of {} are those of lent memory already",
                               session_.server().device(endpoint_).info().name);
  }
  co_return co_await register_memory(memory.address, memory.length_bytes, memory.access, nullptr);
}

void Path::use_lent() {
  if (!live() || !has_lent_ || (lent_task_ && !lent_task_.done())) return;
  lent_task_ = catch_up();
  lent_task_.start();
}

base::Task<void> Path::catch_up() {
  const base::Status status = co_await register_lent();
  if (status.ok() || !live()) co_return;
  tell_shortage(status.error());
  close(status.error().message());
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

}  // namespace braid::trs::server
