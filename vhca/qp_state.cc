#include "vhca/qp_state.h"

#include <fmt/core.h>

#include <iterator>

namespace braid::vhca {
namespace {

using base::Errc;
using base::make_error;

// Moves to RESET and ERR leave everything behind and take no attribute. From RESET there is no way
// to ERR: there is nothing that could fail.
constexpr QpTransition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
         IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
         IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_ERR, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_ERR, IBV_QPS_ERR, 0, 0},
};

constexpr std::string_view kStateText[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

// In the order of the bits of ibv_qp_attr_mask.
constexpr std::string_view kMaskText[] = {"STATE",
                                          "CUR_STATE",
                                          "EN_SQD_ASYNC_NOTIFY",
                                          "ACCESS_FLAGS",
                                          "PKEY_INDEX",
                                          "PORT",
                                          "QKEY",
                                          "AV",
                                          "PATH_MTU",
                                          "TIMEOUT",
                                          "RETRY_CNT",
                                          "RNR_RETRY",
                                          "RQ_PSN",
                                          "MAX_QP_RD_ATOMIC",
                                          "ALT_PATH",
                                          "MIN_RNR_TIMER",
                                          "SQ_PSN",
                                          "MAX_DEST_RD_ATOMIC",
                                          "PATH_MIG_STATE",
                                          "CAP",
                                          "DEST_QPN"};
static_assert(IBV_QP_DEST_QPN == 1 << (std::size(kMaskText) - 1));

const QpTransition* find(ibv_qp_state from, ibv_qp_state to) {
  for (const QpTransition& transition : kTransitions) {
    if (transition.from == from && transition.to == to) return &transition;
  }
  return nullptr;
}

}  // namespace

std::span<const QpTransition> qp_transitions() {
  return kTransitions;
}

base::Status check_qp_transition(ibv_qp_state current, const QpAttr& attr, int mask,
                                 ibv_qp_state& next) {
  next = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : current;
  const QpTransition* transition = find(current, next);
  if (transition == nullptr) {
    return make_error(Errc::kInvalid, "a QP in state {} cannot be modified to {}",
                      qp_state_text(current), qp_state_text(next));
  }
  const int given = mask & ~IBV_QP_STATE;
  if (const int missing = transition->required & ~given; missing != 0) {
    return make_error(Errc::kInvalid, "modifying a QP from {} to {} requires {}",
                      qp_state_text(current), qp_state_text(next), qp_attr_mask_text(missing));
  }
  const int excess = given & ~(transition->required | transition->optional);
  if (excess != 0) {
    return make_error(Errc::kInvalid, "modifying a QP from {} to {} does not allow {}",
                      qp_state_text(current), qp_state_text(next), qp_attr_mask_text(excess));
  }
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != current) {
    return make_error(Errc::kInvalid, "CUR_STATE says {}, the QP is in {}",
                      qp_state_text(attr.cur_qp_state), qp_state_text(current));
  }
  return base::ok_status();
}

std::string_view qp_state_text(ibv_qp_state state) {
  const auto index = static_cast<size_t>(state);
  return index < std::size(kStateText) ? kStateText[index] : "an unknown state";
}

std::string qp_attr_mask_text(int mask) {
  std::string text;
  auto rest = static_cast<unsigned>(mask);
  for (size_t bit = 0; bit < std::size(kMaskText); ++bit) {
    if ((rest >> bit & 1) == 0) continue;
    rest &= ~(1u << bit);
    if (!text.empty()) text += " | ";
    text += kMaskText[bit];
  }
  if (rest != 0) text += fmt::format("{}{:#x}", text.empty() ? "" : " | ", rest);
  return text;
}

}  // namespace braid::vhca
