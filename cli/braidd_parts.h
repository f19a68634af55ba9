// What of `braid` is in `braidd` only (cli/verbs/*_in_braidd.cc). Most commands ask a node and are
// done, and starting is most of what they take: so `braid` has no node in it, nor the libraries
// that a node takes, and becomes `braidd` for the verbs that are a node, and for those that read
// its keys and its configuration. `.ci/run` sees to it that `braid` needs none of those libraries.
//
// Main thread, before any other is started.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/verbs/verbs.h"

namespace braid::cli {

struct NbdArguments;

/// `braid serve` and `braid nbd`, until a signal.
void serve(Context& context, const ServeArguments& arguments);
void serve_nbd(Context& context, const NbdArguments& arguments);
/// `braid map --foreground`: calls `mapped` with the device's status, and stays until a signal.
void map_here(Context& context, const nlohmann::json& params, bool tcp_within_host,
              const std::function<void(const nlohmann::json&)>& mapped);
/// Makes a key for the client `name` and prints its line, or puts it into the new file `output`.
void make_key(Context& context, const std::string& name, const std::string& output);
/// Prints the names of the keys in a file.
void list_keys(Context& context, const std::string& file);
/// Of the file, with its drop-ins; empty: kConfigFile, which need not be there.
void check_config(Context& context, const std::string& file);
void show_config(Context& context, const std::string& file);

struct BraiddParts {
  decltype(&cli::serve) serve;
  decltype(&cli::serve_nbd) serve_nbd;
  decltype(&cli::map_here) map_here;
  decltype(&cli::make_key) make_key;
  decltype(&cli::list_keys) list_keys;
  decltype(&cli::check_config) check_config;
  decltype(&cli::show_config) show_config;
};

/// argv[0] of a `braidd` that a `braid` has become.
inline constexpr std::string_view kCalledForBraid = "braid";

/// `braidd` has them itself, and so have tests.
const BraiddParts& parts_in_this_process();
/// Each makes this process the `braidd` that lies beside its program, called kCalledForBraid and
/// with the other arguments that it has, and does not come back. What stands in the way is told.
const BraiddParts& parts_by_exec();

}  // namespace braid::cli
