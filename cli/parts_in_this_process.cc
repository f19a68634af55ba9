#include "cli/braidd_parts.h"

namespace braid::cli {

const BraiddParts& parts_in_this_process() {
  static constexpr BraiddParts kParts{&serve,     &serve_nbd,    &map_here,   &make_key,
                                      &list_keys, &check_config, &show_config};
  return kParts;
}

}  // namespace braid::cli
