// Files of keys, by the names that the command line has for them (reach/key_file.h).
#pragma once

#include "reach/key_file.h"

namespace braid::cli {

using reach::read_key;
using reach::read_keys;
using reach::write_key;

}  // namespace braid::cli
