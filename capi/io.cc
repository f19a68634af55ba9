// The data path: no allocation, lock or message; a system call only where a turn of the reactor
// makes one (base/reactor.h), and over TCP one for each braid_submit().
#include <algorithm>

#include "capi/context.h"

namespace bnbd = braid::bnbd;
using braid::base::Errc;
using braid::base::kNever;
using braid::base::make_error;
using braid::base::Status;
using braid::capi::Request;

namespace {

struct Rule {
  bnbd::BlockOp op;
  uint32_t flags;  // those that it may have
  bool buffer;
};
constexpr Rule kRules[] = {
    {bnbd::BlockOp::kRead, 0, true},
    {bnbd::BlockOp::kWrite, BRAID_FUA, true},
    {bnbd::BlockOp::kFlush, 0, false},
    {bnbd::BlockOp::kDiscard, BRAID_FUA, false},
    {bnbd::BlockOp::kWriteZeroes, BRAID_FUA | BRAID_NO_UNMAP, false},
};

bool well_formed(const braid_io& io) {
  if (io.op >= std::size(kRules)) return false;
  const Rule& rule = kRules[io.op];
  return (io.flags & ~rule.flags) == 0 && (io.buffer != nullptr) == rule.buffer;
}

Status malformed(const braid_io& io) {
  if (io.op >= std::size(kRules))
    return make_error(Errc::kInvalid, "operation {}: want one of enum braid_op, 0 to {}", io.op,
                      std::size(kRules) - 1);
  const Rule& rule = kRules[io.op];
  const std::string_view name = bnbd::to_string(rule.op);
  if ((io.flags & ~rule.flags) != 0)
    return make_error(Errc::kInvalid, "flags {:#x} of a {}: it takes {:#x} at most", io.flags, name,
                      rule.flags);
  return make_error(Errc::kInvalid, "the buffer of a {}: it has {}", name,
                    rule.buffer ? "to be there" : "none");
}

}  // namespace

void braid_context::fill(Request& request, const braid_io& io) const {
  bnbd::DeviceOp& operation = request.operation;
  operation.op = kRules[io.op].op;
  operation.force_unit_access = (io.flags & BRAID_FUA) != 0;
  operation.no_unmap = (io.flags & BRAID_NO_UNMAP) != 0;
  operation.offset_bytes = io.offset;
  operation.length_bytes = io.length;
  operation.buffer.address = static_cast<std::byte*>(io.buffer);
  operation.buffer.region = io.buffer != nullptr ? regions.find(io.buffer, io.length) : nullptr;
  request.device = io.device;
  request.user_data = io.user_data;
  request.ended.reset();
}

unsigned braid_context::submit(const braid_io* requests, unsigned count, Status& wrong) {
  if (!engine_) {
    if (count > 0) wrong = make_error(Errc::kInvalid, "the context has no device yet");
    return 0;
  }
  auto& engine = *engine_;
  engine.reactor->begin_calls();
  unsigned taken = 0;
  for (; taken < count; ++taken) {
    const braid_io& io = requests[taken];
    if (!well_formed(io)) {
      wrong = malformed(io);
      break;
    }
    if (io.device == nullptr || &io.device->context != this ||
        (io.reserved[0] | io.reserved[1]) != 0) {
      wrong =
          make_error(Errc::kInvalid, "request {} of {}: {}", taken, count,
                     (io.reserved[0] | io.reserved[1]) != 0 ? "its reserved words have to be 0"
                                                            : "its device is none of this context");
      break;
    }
    if (engine.in_flight + engine.completions.count() == engine.requests.size()) break;
    Request& request = *engine.free.pop_front();
    fill(request, io);
    ++engine.in_flight;
    ++io.device->in_flight;
    request.operation.start(*io.device->block);
  }
  engine.reactor->end_turn();
  return taken;
}

void braid_context::slot_done(bnbd::DeviceOp& operation, Errc status) {
  Request& request = *static_cast<Request*>(operation.context);
  auto& engine = *request.device->context.engine_;
  --request.device->in_flight;
  --engine.in_flight;
  request.ended = status;
  engine.completions.push(request);
}

void braid_context::call_done(bnbd::DeviceOp& operation, Errc status) {
  Request& request = *static_cast<Request*>(operation.context);
  --request.device->in_flight;
  request.ended = status;
}

/// Turns the reactor, which spins and sleeps as in any program, until it is so or late.
template <typename Done>
void braid_context::turn_until(Done done, uint64_t deadline_ns) {
  braid::base::Reactor& reactor = *engine_->reactor;
  braid::base::SpinBudget& budget = *engine_->spin_budget;
  budget.begin();
  while (!done()) {
    if (reactor.turn()) {
      budget.worked(reactor.now_ns(), reactor);
      continue;
    }
    const uint64_t now_ns = reactor.now_ns();
    if (now_ns >= deadline_ns) return budget.gave_up(now_ns);
    if (budget.spent(now_ns, reactor) && reactor.prepare_sleep()) {
      budget.sleeps();
      reactor.io().wait(std::min(deadline_ns, reactor.next_deadline_ns()));
    } else {
      reactor.host().yield();
    }
  }
}

Errc braid_context::run(braid_device& device, const braid_io& io) {
  engine_->reactor->begin_calls();
  Request request;
  fill(request, io);
  request.device = &device;
  request.operation.context = &request;
  request.operation.done = &braid_context::call_done;
  ++device.in_flight;
  request.operation.start(*device.block);
  engine_->reactor->end_turn();
  turn_until([&] { return request.ended.has_value(); }, kNever);
  return *request.ended;
}

unsigned braid_context::poll(braid_completion* completions, unsigned count, int64_t timeout_ns) {
  if (!engine_ || count == 0) return 0;
  auto& engine = *engine_;
  if (engine.completions.count() < count) engine.reactor->turn();
  if (engine.completions.empty() && engine.in_flight > 0 && timeout_ns != 0) {
    const uint64_t now_ns = engine.reactor->now_ns();
    const auto limit_ns = static_cast<uint64_t>(timeout_ns);
    const bool limited = timeout_ns > 0 && limit_ns < kNever - now_ns;
    turn_until([&] { return !engine.completions.empty() || woken_; },
               limited ? now_ns + limit_ns : kNever);
  }
  const unsigned ready = std::min(count, engine.completions.count());
  for (unsigned i = 0; i < ready; ++i) {
    Request& request = engine.completions.pop();
    request.operation.told();
    completions[i] = {request.user_data, -braid::base::errno_from_errc(*request.ended), 0};
    engine.free.push_front(request);  // the one that is warm
  }
  if (ready == 0) nothing_fetched(timeout_ns != 0);
  return ready;
}

/// Who does not wait here is told of a wake where it waits: at the descriptor.
void braid_context::nothing_fetched(bool waited) {
  if (!waited && descriptor_ < 0) return;
  const bool woken = woken_ && woken_.exchange(false);
  wake_shown_ = woken && !waited;
  if (!waited) arm();
}

/// Async-signal-safe: a wake of the reactor is an exchange, and a write where it sleeps.
void braid_context::wake() {
  woken_ = true;
  if (braid::base::Reactor* const sleeper = sleeper_) sleeper->wake();
}
