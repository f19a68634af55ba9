#include "cli/foreground.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/result.h"

namespace braid::cli {

using base::Errc;
using nlohmann::json;

namespace {

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  return signals;
}

void wait_for_signal() {
  const sigset_t signals = ending_signals();
  int which = 0;
  while (sigwait(&signals, &which) != 0) {
  }
}

/// Waits for a signal, stops the node; while a device is in use, waits for the next signal, which
/// ends it anyway.
int stay(Context& context, Node& node) {
  wait_for_signal();
  auto stopped = node.stop(/*force=*/false);
  if (stopped.code() == Errc::kBusy) {
    std::cerr << "braid: " << stopped.error().message()
              << "; unmount it and end this process again, or it ends with I/O errors\n";
    wait_for_signal();
    stopped = node.stop(/*force=*/true);
  }
  if (!stopped.ok()) report(context, stopped.error());
  if (stopped.code() == Errc::kTimedOut) std::_Exit(context.exit_code);
  return context.exit_code;
}

}  // namespace

void block_ending_signals() {
  const sigset_t signals = ending_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int run_node(Context& context, NodeOptions options, const std::function<void(const json&)>& ready) {
  auto node = Node::start(std::move(options));
  if (!node.ok()) {
    report(context, node.error());
    return context.exit_code;
  }
  auto status = (*node)->call("status", json::object());
  if (status.ok()) ready(*status);
  return stay(context, **node);
}

int map_in_foreground(Context& context, const json& params,
                      const std::function<void(const json&)>& mapped) {
  NodeOptions options;
  options.name = context.control.empty() ? "map." + std::to_string(getpid()) : context.control;
  options.role = "device";
  options.kernel_devices = true;
  auto node = Node::start(std::move(options));
  if (!node.ok()) {
    report(context, node.error());
    return context.exit_code;
  }
  auto device = (*node)->call("map", params);
  if (!device.ok()) {
    report(context, device.error());
    if (auto stopped = (*node)->stop(/*force=*/true); !stopped.ok())
      report(context, stopped.error());
    return context.exit_code;
  }
  mapped(*device);
  return stay(context, **node);
}

}  // namespace braid::cli
