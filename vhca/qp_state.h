// States of a reliable-connected QP and the moves between them, as ibv_modify_qp(3) has them.
//
// README.md shows the table; a test compares the two.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "vhca/verbs.h"

namespace braid::vhca {

/// One allowed move. IBV_QP_STATE is required wherever `from` and `to` differ and not listed.
struct QpTransition {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;  // ibv_qp_attr_mask bits that must be given
  int optional;  // and those that may
};

std::span<const QpTransition> qp_transitions();

/// Whether a QP in `current` may be modified so: the move exists, nothing is missing, nothing is
/// too much. kInvalid names states and attributes. `next` is the state that it leads to.
base::Status check_qp_transition(ibv_qp_state current, const QpAttr& attr, int mask,
                                 ibv_qp_state& next);

/// "RESET", "INIT" ...
std::string_view qp_state_text(ibv_qp_state state);
/// "PORT | ACCESS_FLAGS": the names of ibv_qp_attr_mask without their prefix; unknown bits in hex.
std::string qp_attr_mask_text(int mask);

}  // namespace braid::vhca
