// The options that say what to export: shared by `braid serve` and `braidd`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bnbd/server.h"
#include "cli/node.h"

namespace braid::cli {

/// Exports as a person types them for --memory or --null, NAME=SIZE each. kInvalid says which one
/// is wrong: a name that none can have, no size, or one that is no multiple of 4096 bytes or too
/// large.
base::Result<std::vector<SyntheticExport>> parse_synthetic(const std::vector<std::string>& texts,
                                                           bnbd::NamedExport::Kind kind);

/// Where a server is to listen, "IP[:PORT]". kInvalid also for a host's name.
base::Result<vhca::Address> parse_listen(const std::string& text);

inline constexpr uint32_t kQueueDepthMin = 2;
inline constexpr uint32_t kQueueDepthMax = 4096;
/// How many requests of at most that size a session may have in flight: number and size of its
/// chunks share the 28 bits that name a place in them.
uint32_t queue_depth_max(uint32_t max_io_bytes);

/// kInvalid: huge pages are asked for, and no memory is exported.
base::Status check_huge_pages(const ServeOptions& options);

struct ServeArguments {
  std::string root;
  std::vector<std::string> listen;  // none: all addresses, port 1234
  std::string wire = "auto";
  std::vector<std::string> memory;  // NAME=SIZE
  std::vector<std::string> null;    // NAME=SIZE
  bool huge_pages = false;          // of `memory`
  std::string keys;                 // a file; empty: none
  bool read_only = false;
  bool block_devices = false;
  unsigned reactors = 1;
  uint32_t queue_depth = 128;
  std::string max_io = "1M";
  std::string chunk_guard = "open";

  bool any() const { return !root.empty() || !memory.empty() || !null.empty(); }
  /// `auto`: whether this node uses TCP for addresses of this machine, too.
  bool tcp_within_host() const { return wire == "tcp"; }
  /// What they mean, or which one is wrong.
  base::Result<ServeOptions> options() const;
  /// The same of all but `memory` and `null`, for who knows the exports otherwise.
  base::Result<ServeOptions> options_without_exports() const;
};

}  // namespace braid::cli
