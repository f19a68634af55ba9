// Session: admin requests, each with a deadline.
#include "trs/client/admin.h"

#include <algorithm>
#include <cstring>

#include "base/pages.h"
#include "trs/client/session.h"

namespace braid::trs::client {

using base::Errc;
using base::make_error;

namespace {

constexpr uint32_t kAdminPermitsMax = 4;
// A server of few chunks needs them for I/O.
constexpr uint32_t kChunksPerAdminPermit = 32;

std::string seconds(uint64_t ns) {
  const uint64_t ms = ns / base::kMillisecond;
  return fmt::format("{}.{} s", ms / 1000, ms % 1000 / 100);
}

}  // namespace

uint32_t admin_permits(const wire::ConnRsp& granted, uint32_t shared_features) {
  const bool braid_peer = granted.braid_magic == wire::kBraidMagic;
  if (braid_peer && (shared_features & wire::kFeatureAdminPermits) == 0) return 1;
  return std::clamp(granted.queue_depth / kChunksPerAdminPermit, 1u, kAdminPermitsMax);
}

/// For good: the memory outlives every path.
base::Status Session::make_memory() {
  admin_mr_.reset();  // of an attempt that failed half-way: before their memory
  answers_mr_.reset();
  const uint32_t count = limits_.admin_permits;
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  BRAID_TRY(admin_memory_,
            home_.host().create_segment(size_t{count} * kAdminBytesMax, "trs admin answers"));
  BRAID_TRY(admin_mr_,
            domain_.register_memory(admin_memory_->data(), admin_memory_->size(), access));
  const size_t answers_bytes = size_t{limits_.queue_depth} * wire::kAnswerSlotBytes;
  BRAID_TRY(answers_, home_.host().create_segment(answers_bytes, "trs answer slots"));
  BRAID_TRY(answers_mr_, domain_.register_memory(answers_->data(), answers_bytes, access));
  if (options_.touch_buffers) {
    BRAID_CHECK(base::populate({admin_memory_->data(), admin_memory_->size()}));
    BRAID_CHECK(base::populate({answers_->data(), answers_->size()}));
  }
  admin_slots_ = std::make_unique<AdminSlot[]>(count);
  for (uint32_t i = 0; i < count; ++i) {
    admin_slots_[i].memory = {admin_memory_->data() + size_t{i} * kAdminBytesMax, kAdminBytesMax};
    admin_slots_[i].request.done = &admin_done;
    admin_slots_[i].request.context = this;
  }
  return {};
}

base::Task<base::Result<Errc>> Session::admin(const AdminRequest& request) {
  const std::shared_ptr<base::Signal> changed = changed_;
  if (request.user_header.size() > wire::kUserHeaderBytesMax ||
      request.data.size() > kAdminBytesMax) {
    co_return make_error(Errc::kInvalid,
                         "admin request '{}' with {} bytes of header and {} of data: at most {} "
                         "and {} are right",
                         request.what, request.user_header.size(), request.data.size(),
                         wire::kUserHeaderBytesMax, kAdminBytesMax);
  }
  const uint64_t began_ns = home_.host().now_ns();
  const uint64_t limit_ns = options_.admin_timeout_ns;
  const uint64_t deadline_ns =
      limit_ns < base::kNever - began_ns ? began_ns + limit_ns : base::kNever;
  base::Timer timer([](base::Timer& t) { static_cast<base::Signal*>(t.context)->notify_all(); },
                    changed.get());
  if (deadline_ns != base::kNever) home_.schedule(timer, deadline_ns);

  Permit permit;
  while (!closing_ && !(permit = queues_.front()->acquire())) {
    if (home_.host().now_ns() >= deadline_ns) {
      co_return make_error(Errc::kTimedOut,
                           "{}: '{}' waited {} behind {} admin requests that have no answer yet",
                           peer_text(), request.what, seconds(limit_ns), limits_.admin_permits);
    }
    co_await changed->wait();
  }
  if (closing_) co_return make_error(Errc::kCanceled, "the session is being closed");

  const auto outcome = std::make_shared<AdminOutcome>();
  outcome->data = request.data;
  AdminSlot& slot = admin_slots_[permit.index()];
  slot.asker = outcome;
  submit_admin(slot, request, std::move(permit));
  while (!outcome->status) {
    if (home_.host().now_ns() >= deadline_ns) {
      queues_.front()->cancel(slot.request);  // if it has not left yet
      co_return make_error(Errc::kTimedOut, "{} has not answered '{}' for {}", peer_text(),
                           request.what, seconds(limit_ns));
    }
    co_await changed->wait();
  }
  if (outcome->answered) co_return *outcome->status;
  co_return make_error(*outcome->status, "{}: no answer to '{}', for want of a path: {}",
                       peer_text(), request.what, why_ ? why_->message() : "not connected");
}

void Session::submit_admin(AdminSlot& slot, const AdminRequest& asked, Permit permit) {
  const size_t header_bytes = asked.user_header.size();
  if (header_bytes > 0) {
    std::memcpy(slot.header.data(), asked.user_header.data(), header_bytes);
  }
  if (asked.direction == Direction::kWrite && !asked.data.empty()) {
    std::memcpy(slot.memory.data(), asked.data.data(), asked.data.size());
  }
  slot.what = asked.what;
  slot.since_ns = home_.host().now_ns();
  slot.in_use = true;
  slot.late_answer = asked.late_answer;
  ClientRequest& request = slot.request;
  request.direction = asked.direction;
  request.user_header = std::span(slot.header).first(header_bytes);
  request.data = {admin_mr_.get(), slot.memory.data(), static_cast<uint32_t>(asked.data.size())};
  request.permit = std::move(permit);
  queues_.front()->submit(request);
}

/// Gives the answer to whoever still waits for it, and the slot back.
void Session::admin_done(ClientRequest& request, Errc status) {
  auto& self = *static_cast<Session*>(request.context);
  AdminSlot* const end = self.admin_slots_.get() + self.limits_.admin_permits;
  AdminSlot& slot = *std::find_if(self.admin_slots_.get(), end,
                                  [&](const AdminSlot& each) { return &each.request == &request; });
  const auto data = slot.memory.first(request.data.length_bytes);
  const bool brought_data =
      request.answered() && status == Errc::kOk && request.direction == Direction::kRead;
  slot.in_use = false;
  const LateAnswer late_answer = std::exchange(slot.late_answer, {});
  if (const auto asker = slot.asker.lock()) {
    asker->status = status;
    asker->answered = request.answered();
    if (brought_data && !data.empty()) {
      std::memcpy(asker->data.data(), data.data(), data.size());
    }
  } else if (request.answered()) {
    self.log_.info("'{}' was answered after {}: nobody waits for it any more", slot.what,
                   seconds(self.home_.host().now_ns() - slot.since_ns));
    if (late_answer) late_answer(status, brought_data ? data : data.first(0));
  }
  self.wake();
}

/// What the server has not answered in time, for explain().
std::string Session::unanswered() const {
  std::string text;
  const uint64_t now_ns = home_.host().now_ns();
  for (uint32_t i = 0; admin_slots_ && i < limits_.admin_permits; ++i) {
    const AdminSlot& slot = admin_slots_[i];
    if (!slot.in_use || !slot.asker.expired()) continue;
    text += fmt::format("; it has not answered '{}' for {}", slot.what,
                        seconds(now_ns - slot.since_ns));
  }
  return text;
}

}  // namespace braid::trs::client
