// Files of keys (docs/authentication.md): regular files that belong to their reader or to root, and
// that nobody else may read or change. Blocks; any thread.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "trs/keys.h"

namespace braid::reach {

/// What a server takes: all lines. Errors name the file, its line, and what would be right.
base::Result<std::shared_ptr<const trs::KeyRing>> read_keys(const std::string& path);
/// What a client has: exactly one line.
base::Result<trs::KeyPtr> read_key(const std::string& path);
/// A new file, mode 0600, with this one line. kExists: there is one; it is left alone.
base::Status write_key(const std::string& path, const trs::Key& key);

}  // namespace braid::reach
