#include "bnbd/frontend/fuse_server.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "bnbd/frontend/fuse_operations.h"

namespace braid::bnbd {

using base::Errc;

namespace {

// One look takes at most this many requests, so that timers and other pollers get their turn, and
// of large ones only so much: those before them may end meanwhile, whose slots are in the caches.
constexpr int kRequestsPerPoll = 32;
constexpr size_t kLargeBytes = 16 << 10;
constexpr size_t kLargeBytesPerPoll = 64 << 10;

/// What the kernel is told. Only these: others would be taken for an answer about the protocol
/// (ENOSYS: never ask again) or would make the kernel ask again at once (EAGAIN, EINTR).
int fuse_errno(Errc status) {
  switch (status) {
    case Errc::kOk:
      return 0;
    case Errc::kInvalid:
    case Errc::kOutOfRange:
      return EINVAL;
    case Errc::kReadOnly:
      return EROFS;
    case Errc::kNotSupported:
      return EOPNOTSUPP;
    case Errc::kNoSpace:
      return ENOSPC;
    case Errc::kNoMemory:
      return ENOMEM;
    case Errc::kTimedOut:
      return ETIMEDOUT;
    default:
      return EIO;
  }
}

}  // namespace

void FuseServer::Release::operator()(FuseServer* server) const {
  server->stop();
  if (server->pool_->in_use() == 0) {
    delete server;
  } else {
    server->released_ = true;
  }
}

FuseServer::FuseServer(base::Reactor& reactor, BlockDevice& device, const std::string& file_name,
                       std::unique_ptr<SlotPool<Slot>> pool, UniqueFd epoll_fd)
    : reactor_(reactor),
      device_(device),
      file_name_(file_name),
      pool_(std::move(pool)),
      epoll_(std::move(epoll_fd)),
      completed_(reactor) {
  const auto prepare = [this](Slot& slot) {
    slot.server = this;
    slot.operation.done = &FuseServer::operation_done;
    slot.operation.context = &slot;
  };
  pool_->set_owner(prepare, [this] { completed_.notify_all(); });
  watch_.context = this;
  watch_.ready = [](base::Watch& watch) {
    auto& self = *static_cast<FuseServer*>(watch.context);
    self.readable_ = true;
    self.poll();
    // The reactor would report what is left over and over: its turns go on with it.
    if (self.readable_) self.watch_kernel(false);
  };
}

FuseServer::~FuseServer() {
  BRAID_ASSERT(session_ == nullptr && pool_->in_use() == 0);
}

base::Result<FuseServer::Ptr> FuseServer::create(base::Reactor& reactor, BlockDevice& device,
                                                 const std::string& file_name,
                                                 std::unique_ptr<SlotPool<Slot>> pool,
                                                 UniqueFd fuse_fd) {
  UniqueFd epoll_fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_fd.valid()) return base::sys_error(errno, "make an epoll descriptor");
  struct epoll_event event = {};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_fd.get(), EPOLL_CTL_ADD, fuse_fd.get(), &event) != 0) {
    return base::sys_error(errno, "watch a FUSE session").with("{}", file_name);
  }
  Ptr server(new FuseServer(reactor, device, file_name, std::move(pool), std::move(epoll_fd)));
  BRAID_CHECK(server->start_session(std::move(fuse_fd)));
  return server;
}

base::Status FuseServer::start_session(UniqueFd fuse_fd) {
  session_ = FuseOperations::create_session(*this, pool_->payload_bytes(), fuse_fd.get());
  if (session_ == nullptr) return base::make_error(Errc::kNoMemory, "libfuse made no session");
  fuse_fd_ = fuse_fd.release();  // the session's from here on
  quiet_.is_now(device_);
  watch_kernel(true);
  return base::ok_status();
}

void FuseServer::stop() {
  if (session_ == nullptr) return;
  if (watching_) {
    reactor_.io().unwatch(watch_);
    watching_ = false;
  } else {
    reactor_.remove(*this);
  }
  pool_->for_each([](Slot& slot) {
    if (slot.request == nullptr) return;
    FuseOperations::reply_error(std::exchange(slot.request, nullptr), EIO);
  });
  FuseOperations::destroy_session(std::exchange(session_, nullptr));
  fuse_fd_ = -1;
}

void FuseServer::watch_kernel(bool on) {
  if (on == watching_) return;
  watching_ = on;
  if (on) {
    reactor_.remove(*this);
    reactor_.io().watch_readable(epoll_, watch_);
  } else {
    reactor_.io().unwatch(watch_);
    reactor_.add(*this);
  }
}

base::Task<void> FuseServer::drained() {
  while (pool_->in_use() != 0 || pool_->growing()) co_await completed_.wait();
}

KernelDeviceStatistics FuseServer::statistics() const {
  KernelDeviceStatistics all = statistics_;
  all.in_flight = pool_->in_use();
  return all;
}

bool FuseServer::poll() {
  bool worked = false;
  size_t large_bytes = 0;
  for (int i = 0; i < kRequestsPerPoll && large_bytes < kLargeBytesPerPoll; ++i) {
    if (!readable_ || session_ == nullptr) break;
    Slot* const slot = pool_->acquire();
    if (slot == nullptr) {
      if (!std::exchange(starved_, true)) ++statistics_.starved;
      pool_->grow(reactor_);
      break;
    }
    starved_ = false;
    if (!receive(*slot)) break;
    if (slot->received_bytes >= kLargeBytes) large_bytes += slot->received_bytes;
    worked = true;
  }
  if (!readable_ && session_ != nullptr) watch_kernel(true);
  return worked;
}

bool FuseServer::receive(Slot& slot) {
  slot.received_bytes = 0;
  std::byte* const begin = slot.payload - kWriteHeadBytes;
  // The kernel refuses to be read with less than 8 KiB. Beyond the payload the room ends where the
  // next slot's requests begin.
  const size_t room = pool_->payload_bytes() + kSlotHeadBytes;
  const ssize_t got = ::read(fuse_fd_, begin, room);
  if (got <= 0) {
    const int why = got < 0 ? errno : ENODEV;
    pool_->release(slot);
    if (why == ENOENT || why == EINTR) return true;  // the request was withdrawn: the next one
    readable_ = false;
    if (why == EAGAIN) {
      quiet_.is_now(device_);
    } else {
      end_session(why);
    }
    return false;
  }
  ++statistics_.requests;
  slot.received_bytes = static_cast<size_t>(got);
  current_ = &slot;
  kept_ = false;
  FuseOperations::process(session_, begin, slot.received_bytes);
  current_ = nullptr;
  if (!kept_) pool_->release(slot);
  return true;
}

void FuseServer::end_session(int why) {
  if (!end_expected_) {
    reactor_.log().warning("the kernel ended the FUSE session of {} without being asked to: {}",
                           file_name_, base::sys_error(why, "read").message());
  }
  stop();
}

FuseServer::Slot& FuseServer::keep_slot(fuse_req* request) {
  BRAID_ASSERT(current_ != nullptr && !kept_);
  kept_ = true;
  current_->request = request;
  return *current_;
}

void FuseServer::run(Slot& slot, BlockOp op, uint64_t offset_bytes, uint64_t length_bytes) {
  slot.operation.op = op;
  slot.operation.may_lend = op == BlockOp::kRead;
  if (op == BlockOp::kFlush) slot.operation.flush_note = quiet_.note();
  slot.operation.offset_bytes = offset_bytes;
  slot.operation.length_bytes = length_bytes;
  slot.operation.start(device_);
}

void FuseServer::operation_done(DeviceOp& operation, Errc status) {
  auto& slot = *static_cast<Slot*>(operation.context);
  FuseServer& self = *slot.server;
  self.answer(slot, status);
  // Who asks from now on knows of that failure.
  const bool failed_flush = operation.op == BlockOp::kFlush && status != Errc::kOk;
  if (failed_flush && self.session_ != nullptr) self.quiet_.look(self.device_, self.fuse_fd_);
  self.pool_->release(slot);
  if (self.pool_->in_use() != 0) return;
  self.completed_.notify_all();
  if (self.released_) delete &self;
}

void FuseServer::answer(Slot& slot, Errc status) {
  if (status != Errc::kOk) ++statistics_.errors;
  fuse_req* const request = std::exchange(slot.request, nullptr);
  if (request == nullptr) return;  // the session ended meanwhile
  const DeviceOp& operation = slot.operation;
  if (status != Errc::kOk) {
    FuseOperations::reply_error(request, fuse_errno(status));
  } else if (operation.op == BlockOp::kRead) {
    if (operation.lent()) ++statistics_.lent_reads;
    FuseOperations::reply_data(request, operation.data(), operation.length_bytes);
  } else if (operation.op == BlockOp::kWrite) {
    FuseOperations::reply_written(request, operation.length_bytes);
  } else {
    FuseOperations::reply_error(request, 0);
  }
}

void FuseServer::refuse(fuse_req* request, int sys_errno) {
  ++statistics_.refused;
  FuseOperations::reply_error(request, sys_errno);
}

}  // namespace braid::bnbd
