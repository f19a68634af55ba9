// The part of `braid map --foreground` that is a node.
#include <nlohmann/json.hpp>

#include "cli/braidd_parts.h"
#include "cli/foreground.h"

namespace braid::cli {

void map_here(Context& context, const nlohmann::json& params, bool tcp_within_host,
              const std::function<void(const nlohmann::json&)>& mapped) {
  context.exit_code = map_in_foreground(context, params, tcp_within_host, mapped);
}

}  // namespace braid::cli
