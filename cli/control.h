// The control socket: how `braid` talks to the nodes (daemon, foreground servers) of this host.
//
// An abstract unix socket "braid.control.<name>" per node: nothing on a file system, gone with the
// process. Only the same user and root may connect (checked by the kernel's peer credentials).
// Names: "daemon", or "serve.<pid>", "map.<pid>".
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/json_rpc.h"

namespace braid::cli {

/// Serves calls, each connection on a thread of its own (16 at most). `handler` is called on those
/// threads.
class ControlServer {
 public:
  using Handler = std::function<base::Result<nlohmann::json>(const RpcCall& call)>;
  /// kExists when a node of that name is running.
  static base::Result<std::unique_ptr<ControlServer>> start(const std::string& name,
                                                            Handler handler);
  virtual ~ControlServer() =
      default;  // ends and joins the threads; the handler is not called afterwards
};

/// Calls a method of a node and waits. kNotFound: no node of that name runs.
base::Result<nlohmann::json> call_node(const std::string& name, std::string_view method,
                                       const nlohmann::json& params);

/// The names of this user's (for root: all) running nodes of this network namespace, sorted.
base::Result<std::vector<std::string>> running_nodes();

}  // namespace braid::cli
