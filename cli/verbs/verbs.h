// The verbs of `braid`: each adds its subcommand, and its callback does the work and prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
}

namespace braid::cli {

/// What all verbs share. Lives as long as the program.
struct Context {
  std::string control;  // --control: the node to talk to; empty: the daemon, or for list, show and
                        // why all nodes
  bool json = false;    // --json
  int exit_code = 0;    // 0 done, 1 failed, 2 usage
};

inline constexpr const char* kDaemonName = "daemon";

void add_serve(CLI::App& app, Context& context);
void add_map(CLI::App& app, Context& context);
void add_unmap(CLI::App& app, Context& context);
void add_list(CLI::App& app, Context& context);
void add_show(CLI::App& app, Context& context);
void add_why(CLI::App& app, Context& context);

inline constexpr int kFailed = 1;  // exit code: what was asked for could not be done
inline constexpr int kUsage = 2;   // exit code: what was typed makes no sense

/// Prints the error in words (stderr) or as JSON (stdout), and sets the exit code.
void report(Context& context, const base::Error& error, int exit_code = kFailed);

/// "serving DIR on ADDRESS ...": what a node with exports says when it is ready.
void print_serving(const Context& context, const nlohmann::json& status);

/// Prints JSON, indented, with a newline.
void print_json(const nlohmann::json& value);

/// The status of each node that may answer: the one named by --control, else all that run. Nodes
/// that go away meanwhile are left out.
base::Result<std::vector<nlohmann::json>> statuses(const Context& context);

/// A thing with a name: a mapped device or an export, and the node it is on.
struct Found {
  std::string node;
  bool is_device = false;
  std::string thing;  // JSON text of its status
};
/// By device name, device path ("/dev/loop0"), target ("host:port/export") or export name.
/// kNotFound names what is there; kInvalid if the name fits several things.
base::Result<Found> find(const Context& context, const std::string& name);

}  // namespace braid::cli
