// Roles that run in the foreground until a signal: the export server, a mapped device, the daemon.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "cli/node.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

/// Blocks the ending signals in this and all later threads. Call it before any thread starts.
void block_ending_signals();

/// Maps, calls `mapped` with the device's status, and stays until SIGINT or SIGTERM; then unmaps.
/// The exit code.
int map_in_foreground(Context& context, const nlohmann::json& params,
                      const std::function<void(const nlohmann::json&)>& mapped);

/// Starts the node, calls `ready` with its status, and stays until SIGINT or SIGTERM. A device in
/// use delays the end, said in words; a second signal ends anyway. The exit code.
int run_node(Context& context, NodeOptions options,
             const std::function<void(const nlohmann::json&)>& ready);

}  // namespace braid::cli
