#include "cli/foreground.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/result.h"
#include "cli/ending_signals.h"
#include "cli/manager.h"
#include "cli/table.h"
#include "cli/target.h"

namespace braid::cli {

using base::Errc;
using base::Result;
using base::Status;
using nlohmann::json;

namespace {

/// A working directory on a disk that this node maps would keep it in use, and a core file written
/// there would wait for the process that dies.
void leave_working_directory() {
  [[maybe_unused]] const int failed = ::chdir("/");
}

Result<std::unique_ptr<Node>> start(const Context& context, NodeOptions options) {
  if (!context.metrics.empty()) {
    BRAID_TRY(options.metrics, parse_metrics(context.metrics, "--metrics"));
  }
  if (!context.poll_budget.empty()) {
    BRAID_TRY(options.poll_budget_ns, parse_poll_budget(context.poll_budget));
  }
  return Node::start(std::move(options));
}

/// A stop of the node that is under way.
class Ending {
 public:
  Ending(Node& node, bool force) {
    node.stop(force, [shared = shared_](const Status& status) {
      const std::lock_guard lock(shared->mutex);
      shared->outcome = status;
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t n = ::write(shared->ended.get(), &one, sizeof one);
    });
  }
  /// Waits for its end. False: a signal came before, and still waits.
  bool wait(const EndingSignals& signals) const {
    for (;;) {
      pollfd look[2] = {{shared_->ended.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
      if (::poll(look, 2, -1) <= 0) continue;
      if (look[0].revents != 0) return true;
      if (look[1].revents != 0) return false;
    }
  }
  Status outcome() const {
    const std::lock_guard lock(shared_->mutex);
    return *shared_->outcome;
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::optional<Status> outcome;
    const Fd ended{::eventfd(0, EFD_CLOEXEC)};
  };
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

/// Says something. Signals from before it was said (a terminal's HUP and TERM, two quick Ctrl-C) do
/// not answer it.
void tell(const EndingSignals& signals, const std::string& text) {
  std::cerr << "braid: " << printable(text) << "\n" << std::flush;
  signals.drain();
}

/// A disk that does not answer may still read and write this process's memory.
void leave_if_a_disk_hangs(const Context& context, const Status& stopped) {
  if (stopped.code() == Errc::kTimedOut) std::_Exit(context.exit_code);
}

void end_by_force(Context& context, Node& node, const EndingSignals& signals) {
  const Ending ending(node, /*force=*/true);
  if (!ending.wait(signals)) {
    tell(signals,
         "still taking the devices away; ask once more and this process just ends, "
         "which takes them away as well");
    if (!ending.wait(signals)) {
      // A killed node leaves nothing behind (docs/front-ends.md).
      std::_Exit(kFailed);
    }
  }
  const Status stopped = ending.outcome();
  if (!stopped.ok()) report(context, stopped.error());
  leave_if_a_disk_hangs(context, stopped);
}

constexpr int kBusyLookMs = 1000;

/// A service manager asks once, and kills when its time is over: so the node ends as soon as what
/// is in use is free. False: it is not, and a signal came.
bool ends_when_free(Context& context, Node& node, const EndingSignals& signals) {
  while (!signals.wait_ms(kBusyLookMs)) {
    const Ending polite(node, /*force=*/false);
    if (!polite.wait(signals)) return false;
    const Status stopped = polite.outcome();
    if (stopped.code() == Errc::kBusy) continue;
    if (!stopped.ok()) report(context, stopped.error());
    leave_if_a_disk_hangs(context, stopped);
    return true;
  }
  return false;
}

/// A line for the manager's status: it takes no more than one.
std::string one_line(std::string text) {
  return printable(std::move(text));
}

/// Waits for a signal and stops the node, by force only when a signal comes after words that say
/// what that would mean.
int stay(Context& context, Node& node, const EndingSignals& signals, const Manager& manager) {
  signals.wait();
  const auto status = [&](const std::string& words) {
    [[maybe_unused]] const bool told = manager.tell(words).ok();
  };
  status("STOPPING=1\nSTATUS=Unmapping devices and closing sessions");
  const Ending polite(node, /*force=*/false);
  if (!polite.wait(signals)) {
    tell(signals,
         "still writing back and unmapping (braid list, braid why NAME); end this process again, "
         "and it gives up what is not written yet, with I/O errors");
    if (!polite.wait(signals)) {
      signals.drain();
      end_by_force(context, node, signals);
      return context.exit_code;
    }
  }
  const Status stopped = polite.outcome();
  if (stopped.code() == Errc::kBusy) {
    tell(signals, stopped.error().message() +
                      "; end this process again when that is settled, or to end it now, with I/O "
                      "errors");
    status("STATUS=" + one_line(stopped.error().message()));
    if (manager.there()) {
      if (ends_when_free(context, node, signals)) return context.exit_code;
    } else {
      signals.wait();
    }
    end_by_force(context, node, signals);
  } else if (!stopped.ok()) {
    report(context, stopped.error());
    leave_if_a_disk_hangs(context, stopped);
  }
  return context.exit_code;
}

}  // namespace

namespace {

std::string status_words(const std::vector<std::string>& waiting) {
  if (waiting.empty()) return "All that it is to map is mapped";
  std::string names;
  for (const std::string& name : waiting) names += (names.empty() ? "" : ", ") + name;
  return one_line("Not mapped yet: " + names + " (braid why NAME)");
}

}  // namespace

int run_node(Context& context, NodeOptions options, const std::function<void(const json&)>& ready) {
  leave_working_directory();
  auto manager = Manager::of_environment();
  auto watchdog_ns =
      watchdog_interval_ns(std::getenv("WATCHDOG_USEC"), std::getenv("WATCHDOG_PID"), ::getpid());
  if (!manager.ok() || !watchdog_ns.ok()) {
    report(context, manager.ok() ? watchdog_ns.error() : manager.error(), kUsage);
    return context.exit_code;
  }
  const Manager& told = **manager;
  // The daemon has no terminal that it belongs to.
  const EndingSignals signals(/*hangup=*/options.role != "daemon");
  options.device = context.device;
  if (told.there())
    options.still_wanted = [&told](const std::vector<std::string>& waiting) {
      [[maybe_unused]] const bool ok = told.tell("STATUS=" + status_words(waiting)).ok();
    };
  auto node = start(context, std::move(options));
  if (!node.ok()) {
    [[maybe_unused]] const bool ok = told.tell("STATUS=" + one_line(node.error().message())).ok();
    report(context, node.error());
    return context.exit_code;
  }
  // Exports and the control socket are there.
  auto status = (*node)->call("status", json::object());
  if (status.ok()) ready(*status);
  if (const Status failed = told.tell("READY=1"); !failed.ok()) {
    report(context, failed.error());
    return context.exit_code;
  }
  const Watchdog watchdog(**node, told, *watchdog_ns);
  return stay(context, **node, signals, told);
}

int map_in_foreground(Context& context, const json& params, bool tcp_within_host,
                      const std::function<void(const json&)>& mapped) {
  NodeOptions options;
  options.name = context.node_name.empty() ? "map." + std::to_string(getpid()) : context.node_name;
  options.role = "device";
  options.io_process = true;
  options.tcp_within_host = tcp_within_host;
  leave_working_directory();
  const EndingSignals signals(/*hangup=*/true);
  options.device = context.device;
  auto node = start(context, std::move(options));
  if (!node.ok()) {
    report(context, node.error());
    return context.exit_code;
  }
  signals.let_kill();  // this thread only: nothing is mapped yet, and nothing would be left
  auto device = (*node)->call("map", params);
  signals.block();
  if (!device.ok()) {
    report(context, device.error());
    return context.exit_code;
  }
  if (!context.metrics.empty())
    if (auto status = (*node)->call("status", {{"only", member(*device, "name")}}); status.ok())
      (*device)["metrics"] = member(*status, "metrics");
  mapped(*device);
  auto nobody = Manager::at("");
  return stay(context, **node, signals, **nobody);
}

int run_nbd(Context& context, NodeOptions options, const std::vector<json>& remote,
            const std::function<void(const json&)>& ready) {
  leave_working_directory();
  const EndingSignals signals(/*hangup=*/true);
  options.device = context.device;
  auto node = start(context, std::move(options));
  if (!node.ok()) {
    report(context, node.error());
    return context.exit_code;
  }
  signals.let_kill();
  for (const json& params : remote) {
    auto device = (*node)->call("map", params);
    if (device.ok()) continue;
    signals.block();
    report(context, device.error());
    return context.exit_code;
  }
  signals.block();
  auto status = (*node)->call("status", json::object());
  if (status.ok()) ready(*status);
  auto nobody = Manager::at("");
  return stay(context, **node, signals, **nobody);
}

}  // namespace braid::cli
