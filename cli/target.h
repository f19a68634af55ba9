// What a person types to name things, by the names that the command line has for them
// (reach/target.h).
#pragma once

#include "reach/target.h"

namespace braid::cli {

using reach::address_text;
using reach::default_device_name;
using reach::duration_text;
using reach::is_loopback;
using reach::kDefaultPort;
using reach::kPathsMax;
using reach::parse_address;
using reach::parse_duration;
using reach::parse_path;
using reach::parse_poll_budget;
using reach::parse_size;
using reach::parse_target;
using reach::path_text;
using reach::paths_text;
using reach::PathSpec;
using reach::size_text;
using reach::Target;

}  // namespace braid::cli
