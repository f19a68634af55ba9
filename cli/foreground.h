// Roles that run in the foreground until a signal: the export server, a mapped device, the daemon.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "cli/node.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

/// Starts the node, calls `ready` with its status, and stays until SIGINT, SIGTERM or, unless it is
/// the daemon, SIGHUP. A device that is in use or whose server is away delays the end, said in
/// words; a signal after those words ends it with I/O errors. Signals that this process was started
/// to ignore (nohup) stay ignored. The exit code. Call it before any thread starts.
int run_node(Context& context, NodeOptions options,
             const std::function<void(const nlohmann::json&)>& ready);

/// The same for one device: maps, calls `mapped` with its status, stays, unmaps. A node that tells
/// metrics adds their URL to that status, as "metrics". A signal before it is mapped ends the
/// process at once.
int map_in_foreground(Context& context, const nlohmann::json& params, bool tcp_within_host,
                      const std::function<void(const nlohmann::json&)>& mapped);

/// The same for an NBD server: starts the node, maps `remote` (parameters of "map") one after the
/// other, calls `ready` with its status, stays.
int run_nbd(Context& context, NodeOptions options, const std::vector<nlohmann::json>& remote,
            const std::function<void(const nlohmann::json&)>& ready);

}  // namespace braid::cli
