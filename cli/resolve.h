// Host names to IP addresses, by the names that the command line has for them (reach/resolve.h).
#pragma once

#include "reach/resolve.h"

namespace braid::cli {

using reach::is_ip;
using reach::look_up_host;
using reach::LookUp;

}  // namespace braid::cli
