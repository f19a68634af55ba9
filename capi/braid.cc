// The C functions: who may come in, arguments, and the words of errors.
#include "capi/braid/braid.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "capi/context.h"

namespace bnbd = braid::bnbd;
using braid::base::Errc;
using braid::base::Error;
using braid::base::make_error;
using braid::base::Result;
using braid::base::Status;
using braid::capi::Turns;

namespace {

constexpr const char* kForked =
    "this context was made before fork(), by the parent, whose it is: make another one in the "
    "child";

constexpr const char* kBusy = "another thread is using the context";

/// The calling thread is in the context, or `refused` says why not.
class Turn {
 public:
  explicit Turn(braid_context& context) : context_(context), entry_(context.turns.enter()) {
    if (in()) context.begin_turn();
  }
  ~Turn() {
    if (in()) context_.turns.leave(context_.end_turn());
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool in() const { return entry_ == Turns::Entry::kIn; }
  int refused() const { return entry_ == Turns::Entry::kBusy ? -EBUSY : -EPERM; }
  int fail(const Error& error) {
    context_.error = error.message();
    return -braid::base::errno_from_errc(error.code());
  }
  int end(const Status& status) { return status.ok() ? 0 : fail(status.error()); }

 private:
  braid_context& context_;
  const Turns::Entry entry_;
};

/// Why a device did not do a request, in words.
Error refusal(braid_device& device, const braid_io& io, bnbd::BlockOp op, Errc status) {
  const bnbd::BlockInfo& info = device.block->info();
  const std::string what = op == bnbd::BlockOp::kFlush
                               ? fmt::format("{}: flush", device.target)
                               : fmt::format("{}: {} of {} bytes at {}", device.target,
                                             bnbd::to_string(op), io.length, io.offset);
  switch (status) {
    case Errc::kInvalid:
      return make_error(status, "{}: want multiples of {} bytes, and more than 0", what,
                        info.logical_block_bytes);
    case Errc::kOutOfRange:
      return make_error(status, "{}: the device ends at {}", what, info.size_bytes);
    case Errc::kReadOnly:
      return make_error(status, "{}: it is open for reading only", what);
    case Errc::kNotSupported:
      return make_error(status, "{}: the device cannot do that", what);
    default:
      return make_error(status, "{}: {}{}{}", what, braid::base::to_string(status),
                        device.remote ? ": " : "", device.remote ? device.remote->explain() : "");
  }
}

int run(braid_device* device, bnbd::BlockOp op, const braid_io& io, unsigned allowed) {
  if (device == nullptr) return -EINVAL;
  Turn turn(device->context);
  if (!turn.in()) return turn.refused();
  if ((io.flags & ~allowed) != 0)
    return turn.fail(make_error(Errc::kInvalid, "flags {:#x} of a {}: it takes {:#x} at most",
                                io.flags, bnbd::to_string(op), allowed));
  const bool transfers = op == bnbd::BlockOp::kRead || op == bnbd::BlockOp::kWrite;
  if (transfers && io.buffer == nullptr)
    return turn.fail(make_error(Errc::kInvalid, "the buffer of a {} is null", bnbd::to_string(op)));
  const Errc status = device->context.run(*device, io);
  if (status == Errc::kOk) return 0;
  return turn.fail(refusal(*device, io, op, status));
}

/// A structure of the caller's, who may know less of it or more than this library.
template <typename T>
int give(Turn& turn, const T& all, T* out, const char* name) {
  const size_t room = out->struct_bytes;
  if (room < sizeof(size_t))
    return turn.fail(make_error(Errc::kInvalid, "{}.struct_bytes is {}: want sizeof(struct {})",
                                name, room, name));
  const size_t given = std::min(room, sizeof(T));
  std::memcpy(out, &all, given);
  out->struct_bytes = given;
  return 0;
}

uint32_t flags_of(const braid_device& device) {
  const bnbd::BlockInfo& info = device.block->info();
  uint32_t flags = 0;
  if (info.read_only) flags |= BRAID_READ_ONLY;
  if (info.write_cache) flags |= BRAID_WRITE_CACHE;
  if (info.max_discard_bytes > 0) flags |= BRAID_CAN_DISCARD;
  if (info.max_write_zeroes_bytes > 0) flags |= BRAID_CAN_WRITE_ZEROES;
  if (info.fua) flags |= BRAID_CAN_FUA;
  if (info.rotational) flags |= BRAID_ROTATIONAL;
  if (device.remote) flags |= BRAID_REMOTE;
  return flags;
}

}  // namespace

const char* braid_version(void) {
  return BRAID_VERSION;
}

braid_context* braid_new(void) {
  std::unique_ptr<braid_context> context(new (std::nothrow) braid_context);
  if (context && context->turns.valid()) return context.release();
  errno = ENOMEM;
  return nullptr;
}

int braid_free(braid_context* context) {
  if (context == nullptr) return 0;
  switch (context->turns.enter()) {
    case Turns::Entry::kBusy:
      return -EBUSY;
    case Turns::Entry::kForked:
      return -EPERM;
    case Turns::Entry::kIn:
      break;
  }
  context->begin_turn();
  delete context;
  return 0;
}

int braid_set(braid_context* context, const char* name, const char* value) {
  if (context == nullptr) return -EINVAL;
  Turn turn(*context);
  if (!turn.in()) return turn.refused();
  if (name == nullptr || value == nullptr)
    return turn.fail(Error(Errc::kInvalid, "the name or value of a setting is null"));
  return turn.end(context->set(name, value));
}

const char* braid_error(const braid_context* context) {
  if (context == nullptr) return "there is no context";
  if (context->turns.forked()) return kForked;
  // The other one may be writing its own sentence.
  return context->turns.used() ? kBusy : context->error.c_str();
}

int braid_open(braid_context* context, const char* target, braid_device** device) {
  if (context == nullptr || device == nullptr) return -EINVAL;
  *device = nullptr;
  Turn turn(*context);
  if (!turn.in()) return turn.refused();
  if (target == nullptr) return turn.fail(Error(Errc::kInvalid, "the target is null"));
  Result<braid_device*> opened = context->open(target);
  if (!opened.ok()) return turn.fail(opened.error());
  *device = *opened;
  return 0;
}

int braid_close(braid_device* device) {
  if (device == nullptr) return 0;
  Turn turn(device->context);
  if (!turn.in()) return turn.refused();
  return turn.end(device->context.close(*device));
}

int braid_give_up(braid_device* device) {
  if (device == nullptr) return -EINVAL;
  Turn turn(device->context);
  if (!turn.in()) return turn.refused();
  device->context.give_up(*device);
  return 0;
}

int braid_info(braid_device* device, struct braid_info* out) {
  if (device == nullptr || out == nullptr) return -EINVAL;
  Turn turn(device->context);
  if (!turn.in()) return turn.refused();
  const bnbd::BlockInfo& info = device->block->info();
  struct braid_info all {};
  all.size_bytes = info.size_bytes;
  all.flags = flags_of(*device);
  all.logical_block_bytes = info.logical_block_bytes;
  all.physical_block_bytes = info.physical_block_bytes;
  all.max_io_bytes = info.max_io_bytes;
  all.max_discard_bytes = info.max_discard_bytes;
  all.max_write_zeroes_bytes = info.max_write_zeroes_bytes;
  all.discard_granularity_bytes = info.discard_granularity_bytes;
  all.queue_depth = info.queue_depth;
  info.identity.copy(all.identity, sizeof all.identity - 1);
  return give(turn, all, out, "braid_info");
}

int braid_statistics(braid_device* device, struct braid_statistics* out) {
  if (device == nullptr || out == nullptr) return -EINVAL;
  Turn turn(device->context);
  if (!turn.in()) return turn.refused();
  const bnbd::BlockStatistics counted = device->block->statistics();
  struct braid_statistics all {};
  all.reads = counted.reads;
  all.read_bytes = counted.read_bytes;
  all.writes = counted.writes;
  all.write_bytes = counted.write_bytes;
  all.flushes = counted.flushes;
  all.discards = counted.discards;
  all.write_zeroes = counted.write_zeroes;
  all.errors = counted.errors;
  all.copies = counted.copies;
  if (device->session) {
    const braid::trs::ClientStatistics session = device->session->remote->statistics();
    all.messages = session.messages_sent + session.messages_received;
    all.reconnects = session.reconnects;
  }
  all.keeper_rounds = device->context.keeper_rounds();
  return give(turn, all, out, "braid_statistics");
}

const char* braid_explain(braid_device* device) {
  if (device == nullptr) return "there is no device";
  Turn turn(device->context);
  if (!turn.in()) return turn.refused() == -EPERM ? kForked : kBusy;
  device->explanation = device->remote ? device->remote->explain() : "it is open, in this process";
  return device->explanation.c_str();
}

void* braid_alloc(braid_device* device, size_t bytes) {
  const auto refuse = [](int status) {
    errno = -status;
    return nullptr;
  };
  if (device == nullptr) return refuse(-EINVAL);
  Turn turn(device->context);
  if (!turn.in()) return refuse(turn.refused());
  if (bytes == 0)
    return refuse(turn.fail(Error(Errc::kInvalid, "memory of 0 bytes: want one at least")));
  auto region = device->block->create_region(bytes);
  if (!region.ok()) return refuse(turn.fail(region.error()));
  void* const memory = (*region)->data();
  device->context.regions.add(*device, *std::move(region));
  return memory;
}

int braid_dealloc(braid_device* device, void* memory) {
  if (device == nullptr) return -EINVAL;
  Turn turn(device->context);
  if (!turn.in()) return turn.refused();
  if (memory == nullptr) return 0;
  return turn.end(device->context.deallocate(*device, memory));
}

int braid_pread(braid_device* device, void* buffer, size_t length, uint64_t offset) {
  const braid_io io{.op = BRAID_OP_READ, .buffer = buffer, .offset = offset, .length = length};
  return run(device, bnbd::BlockOp::kRead, io, 0);
}

int braid_pwrite(braid_device* device, const void* buffer, size_t length, uint64_t offset,
                 unsigned flags) {
  const braid_io io{.op = BRAID_OP_WRITE,
                    .flags = flags,
                    .buffer = const_cast<void*>(buffer),
                    .offset = offset,
                    .length = length};
  return run(device, bnbd::BlockOp::kWrite, io, BRAID_FUA);
}

int braid_flush(braid_device* device) {
  return run(device, bnbd::BlockOp::kFlush, {.op = BRAID_OP_FLUSH}, 0);
}

int braid_discard(braid_device* device, uint64_t offset, uint64_t length, unsigned flags) {
  const braid_io io{.op = BRAID_OP_DISCARD, .flags = flags, .offset = offset, .length = length};
  return run(device, bnbd::BlockOp::kDiscard, io, BRAID_FUA);
}

int braid_write_zeroes(braid_device* device, uint64_t offset, uint64_t length, unsigned flags) {
  const braid_io io{
      .op = BRAID_OP_WRITE_ZEROES, .flags = flags, .offset = offset, .length = length};
  return run(device, bnbd::BlockOp::kWriteZeroes, io, BRAID_FUA | BRAID_NO_UNMAP);
}

int braid_submit(braid_context* context, const struct braid_io* requests, unsigned count) {
  if (context == nullptr || (requests == nullptr && count > 0)) return -EINVAL;
  Turn turn(*context);
  if (!turn.in()) return turn.refused();
  Status wrong;
  const unsigned taken = context->submit(requests, count, wrong);
  if (!wrong.ok()) {
    const int refused = turn.fail(wrong.error());
    if (taken == 0) return refused;
  }
  return static_cast<int>(taken);
}

int braid_poll(braid_context* context, braid_completion* completions, unsigned count,
               int64_t timeout_ns) {
  if (context == nullptr || (completions == nullptr && count > 0)) return -EINVAL;
  Turn turn(*context);
  if (!turn.in()) return turn.refused();
  return static_cast<int>(context->poll(completions, count, timeout_ns));
}

int braid_wake(braid_context* context) {
  if (context == nullptr) return -EINVAL;
  // In the child of a fork the event is the parent's still.
  if (context->turns.forked()) return -EPERM;
  const int interrupted = errno;
  context->wake();
  errno = interrupted;
  return 0;
}

int braid_fd(braid_context* context) {
  if (context == nullptr) return -EINVAL;
  Turn turn(*context);
  if (!turn.in()) return turn.refused();
  const Result<int> descriptor = context->descriptor();
  return descriptor.ok() ? *Result<int>(descriptor) : turn.fail(descriptor.error());
}
