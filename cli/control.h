// The control socket: how `braid` talks to the nodes (daemon, foreground servers) of this host.
//
// An abstract unix socket "braid.control.<name>" per node: nothing on a file system, gone with the
// process. Only the same user and root may connect (checked by the kernel's peer credentials).
// Names: "daemon", or "serve.<pid>", "map.<pid>".
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/json_rpc.h"

namespace braid::cli {

inline constexpr size_t kControlConnectionsMax = 64;

/// A call that was read and waits for its answer. Any thread; may outlive the server.
class ControlCall {
 public:
  virtual ~ControlCall() = default;  // without an answer: the caller is told kCanceled
  virtual const RpcCall& rpc() const = 0;
  /// Nobody waits for the answer any more. One system call that does not block.
  virtual bool caller_gone() const = 0;
  /// Once. Does not block.
  virtual void answer(base::Result<nlohmann::json> result) = 0;
};

/// Serves calls on one thread of its own that never waits for a caller. A connection has one call
/// at a time. Of too many connections, the one that was idle for longest is closed.
class ControlServer {
 public:
  /// Called on the server's thread; must not block.
  using Handler = std::function<void(std::shared_ptr<ControlCall> call)>;

  /// Takes the name; nobody can connect yet. kExists when a node of that name is running. Answers
  /// longer than `answer_bytes_max` are told to be (kOutOfRange).
  static base::Result<std::unique_ptr<ControlServer>> claim(
      const std::string& name, size_t answer_bytes_max = kRpcAnswerMax);
  /// Lets callers in. Once.
  virtual base::Status serve(Handler handler) = 0;
  /// Joins the thread: the handler is not called afterwards, and late answers are dropped.
  virtual ~ControlServer() = default;
};

struct CallOptions {
  /// For the whole call; -1: no limit. A stopped or hung node does not answer.
  int timeout_ms = -1;
  /// Also ask a node that neither this user nor root runs. Anybody may take any free name, and the
  /// answer is then that person's word.
  bool any_user = false;
};

/// Calls a method of a node and waits. kNotFound: no node of that name runs. kTimedOut;
/// kPermission: the node's or the caller's user forbids it. Else what the node answered, whose
/// shape is checked for "status" (check_status).
base::Result<nlohmann::json> call_node(const std::string& name, std::string_view method,
                                       const nlohmann::json& params,
                                       const CallOptions& options = {});

/// kProtocol names what is missing in the answer to "status", so that its users need not look.
base::Status check_status(const nlohmann::json& status);
/// The same for one device of it: what "map" answers.
base::Status check_device(const nlohmann::json& device);

/// kInvalid unless a node may be called so: 1 to 93 bytes, what the socket's address has room for.
base::Status check_node_name(const std::string& name);

/// The names of the running nodes of this network namespace, whoever runs them; sorted.
base::Result<std::vector<std::string>> running_nodes();
/// The same from the text of /proc/net/unix. Any user of this machine puts what he likes in there,
/// whole lines, too: a name is worth what call_node() then says of its owner.
std::vector<std::string> nodes_among(std::istream& sockets);

}  // namespace braid::cli
