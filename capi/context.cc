#include "capi/context.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/linux_host.h"
#include "base/linux_wait.h"

using braid::base::Result;
using braid::base::Status;

namespace {

constexpr int kKeeperTurnsMax = 256;

std::string default_name(braid::base::Host& host) {
  return fmt::format("{}.{}.{}", host.host_name(), program_invocation_short_name,
                     host.process_id());
}

Status watch(int epoll, int descriptor, const char* what) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return braid::base::sys_error(errno, fmt::format("a descriptor to wait for {}", what));
}

}  // namespace

braid_context::~braid_context() {
  keeper_.reset();
  close_all();
  for (const int descriptor : {descriptor_, completed_event_})
    if (descriptor >= 0) ::close(descriptor);
}

Status braid_context::set(std::string_view name, std::string_view value) {
  const uint64_t budget_ns = settings_.poll_budget_ns;
  BRAID_CHECK(braid::capi::set(settings_, name, value, engine_.has_value()));
  if (engine_ && settings_.poll_budget_ns != budget_ns)
    engine_->spin_budget.emplace(settings_.poll_budget_ns);
  return {};
}

/// What the first device needs. What fails leaves nothing.
Status braid_context::begin() {
  if (engine_) return {};
  engine_.emplace(settings_.queue_depth, settings_.poll_budget_ns);
  const auto made = [this]() -> Status {
    auto& engine = *engine_;
    for (braid::capi::Request& request : engine.requests) {
      request.operation.context = &request;
      request.operation.told_later = true;
      request.operation.done = &braid_context::slot_done;
      engine.free.push_back(request);
    }
    braid::base::LinuxHostOptions host;
    host.log_level = settings_.log;
    host.sleeps_at_once = settings_.poll_budget_ns == 0;
    if (settings_.log == braid::base::LogLevel::kOff) host.log_sink = braid::base::make_null_sink();
    BRAID_TRY(engine.host, braid::base::create_linux_host(host));
    if (settings_.name.empty()) settings_.name = default_name(*engine.host);
    BRAID_TRY(engine.reactor, braid::base::Reactor::create(*engine.host, {.name = "io"}));
    BRAID_TRY(engine.hcas, braid::reach::Hcas::open(*engine.host, *engine.reactor, settings_.hcas));
    engine.hcas->on_link_down(
        [&engine](std::span<const braid::vhca::Device* const> adapter, uint8_t port) {
          for (const auto& session : engine.sessions)
            if (session->remote) session->remote->link_down(adapter, port);
        });
    return {};
  }();
  if (!made.ok()) engine_.reset();
  return made;
}

/// After begin(), where what it was for has failed: unless something has succeeded before, the
/// settings can be changed still.
void braid_context::forget_unused() {
  if (sleeper_.load() == nullptr) engine_.reset();
}

Result<int> braid_context::descriptor() {
  BRAID_CHECK(begin());
  if (descriptor_ >= 0) return descriptor_;
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  const int event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  Status made;
  if (epoll < 0 || event < 0) made = braid::base::sys_error(errno, "a descriptor to wait for");
  if (made.ok()) made = watch(epoll, event, "completions");
  if (made.ok())
    made = watch(epoll, braid::base::wait_descriptor(engine_->reactor->io()), "the reactor");
  if (!made.ok()) {
    if (epoll >= 0) ::close(epoll);
    if (event >= 0) ::close(event);
    forget_unused();
    return made.error();
  }
  sleeper_ = engine_->reactor.get();
  completed_event_ = event;
  return descriptor_ = epoll;
}

/// From here on the descriptor tells that there is something to do.
void braid_context::arm() {
  auto& engine = *engine_;
  const bool told = woken_ || wake_shown_ || !engine.completions.empty();
  if (!told && engine.reactor->prepare_sleep() && braid::base::begin_wait(engine.reactor->io())) {
    armed_ = true;
    return;
  }
  const uint64_t one = 1;
  (void)!::write(completed_event_, &one, sizeof one);
  armed_ = true;
}

void braid_context::disarm() {
  armed_ = false;
  braid::base::end_wait(engine_->reactor->io());
  uint64_t count = 0;
  (void)!::read(completed_event_, &count, sizeof count);
}

/// On the keeper's thread, in the context. What is behind it goes on 50 ms later.
void braid_context::keeper_round() {
  const bool waits = armed_;
  begin_turn();
  for (int i = 0; i < kKeeperTurnsMax && engine_->reactor->turn(); ++i) continue;
  // Whoever submitted last may wait at the descriptor all the same.
  if (waits || (descriptor_ >= 0 && !engine_->completions.empty())) arm();
  ++keeper_rounds_;
}
