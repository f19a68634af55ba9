// The verbs of `braid`: each adds its subcommand, and its callback does the work and prints, or has
// braidd do it (cli/braidd_parts.h).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
class Option;
}  // namespace CLI

namespace braid::cli {

struct BraiddParts;
struct ServeArguments;

/// What all verbs share. Lives as long as the program.
struct Context {
  const BraiddParts* parts = nullptr;  // what is in braidd: here, or by becoming it
  char** arguments = nullptr;          // main's argv; [0] changes when it becomes braidd
  std::string control;  // --control: the node to talk to; empty: the daemon, or for other
                        // verbs than map all nodes
  std::string control_of_environment;  // BRAID_CONTROL: where --control is not given
  std::string node_name;  // --node-name: of a node that this process is; empty: the role's default
  std::string device;     // --device: what a node that this process is uses; empty: kSoftDevice
  std::string poll_budget;  // --poll-budget: of such a node's threads; empty: the default
  std::string metrics;      // --metrics: where such a node tells its metrics; empty: nowhere
  bool json = false;        // --json
  int exit_code = 0;        // 0 done, 1 failed, 2 usage

  const std::string& node_to_ask() const {
    return control.empty() ? control_of_environment : control;
  }
};

inline constexpr const char* kDaemonName = "daemon";

void add_serve(CLI::App& app, Context& context);
void add_map(CLI::App& app, Context& context);
void add_unmap(CLI::App& app, Context& context);
void add_list(CLI::App& app, Context& context);
void add_show(CLI::App& app, Context& context);
void add_why(CLI::App& app, Context& context);
void add_path(CLI::App& app, Context& context);
void add_devices(CLI::App& app, Context& context);
void add_sessions(CLI::App& app, Context& context);
void add_close(CLI::App& app, Context& context);
void add_close_session(CLI::App& app, Context& context);
void add_remap(CLI::App& app, Context& context);
void add_resize(CLI::App& app, Context& context);
void add_key(CLI::App& app, Context& context);
void add_config(CLI::App& app, Context& context);
void add_nbd(CLI::App& app, Context& context);
void add_metrics(CLI::App& app, Context& context);
void add_top(CLI::App& app, Context& context);

/// What to export, for `braid serve` and `braidd`: all but the root.
void add_serve_options(CLI::App& app, ServeArguments& arguments);
/// --device, for commands that are a node.
CLI::Option* add_device_option(CLI::App& app, Context& context);
/// --poll-budget, for the same.
void add_poll_option(CLI::App& app, Context& context);
/// --metrics, for the same.
void add_metrics_option(CLI::App& app, Context& context);

inline constexpr int kFailed = 1;  // exit code: what was asked for could not be done
inline constexpr int kUsage = 2;   // exit code: what was typed makes no sense

/// Prints the error in words (stderr) or as JSON (stdout), and sets the exit code.
void report(Context& context, const base::Error& error, int exit_code = kFailed);

/// --control was given to a verb that talks to no node.
base::Error is_a_node_itself();

/// "serving DIR on ADDRESS ...": what a node with exports says when it is ready.
void print_serving(const Context& context, const nlohmann::json& status);

/// "metrics: http://127.0.0.1:9943/metrics", if the node of this status tells any.
void print_metrics_url(const nlohmann::json& status);

/// A JSON value for people, without control characters.
std::string text_of(const nlohmann::json& value);

/// A member, or null: a node of another version may tell other things.
nlohmann::json member(const nlohmann::json& object, const char* key);
/// The members of an array that is a member, or nothing.
nlohmann::json items(const nlohmann::json& object, const char* key);

/// For people: a table of objects as client_session() makes them, with "node"; below it what does
/// not hold with those that are not Braid's. Members that another version does not tell are "-".
std::string client_sessions_text(const nlohmann::json& sessions);

/// Prints JSON, indented, with a newline.
void print_json(const nlohmann::json& value);

/// Of nodes that run and do not answer: [{"kind", "message"}].
nlohmann::json silent_json(const std::vector<base::Error>& silent);

/// What the nodes say of themselves, and why some do not.
struct Nodes {
  std::vector<nlohmann::json> answered;
  std::vector<base::Error> silent;  // hung, another user's, not understood
};
/// Of the node named by --control, else of all that run; those that end meanwhile are left out. An
/// error if --control names a node that does not answer. `only`: of disks and exports those of this
/// name; a node of an older version tells of all.
base::Result<Nodes> ask_nodes(const Context& context, const std::string& only = {});

enum class ThingKind : uint8_t { kDevice, kExport, kNode };

/// A thing with a name: a mapped device or an export, and the node it is on; or a node.
struct Found {
  std::string node;
  ThingKind kind = ThingKind::kDevice;
  std::string thing;  // JSON text of its status
};
/// By device name, device path ("/dev/loop0"), target ("host:port/export"), export or node name.
/// kNotFound names what is there and who did not answer; kInvalid if the name fits several things.
base::Result<Found> find(const Context& context, const std::string& name);
/// The same among exports only: a device of this host may have the same name.
base::Result<Found> find_export(const Context& context, const std::string& name);

}  // namespace braid::cli
