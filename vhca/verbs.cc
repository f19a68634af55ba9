#include "vhca/verbs.h"

namespace braid::vhca {

std::string_view wc_status_text(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_LOC_LEN_ERR:
      return "local length error";
    case IBV_WC_LOC_QP_OP_ERR:
      return "local QP operation error";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error";
    case IBV_WC_WR_FLUSH_ERR:
      return "flushed";
    case IBV_WC_BAD_RESP_ERR:
      return "bad response";
    case IBV_WC_LOC_ACCESS_ERR:
      return "local access error";
    case IBV_WC_REM_INV_REQ_ERR:
      return "remote invalid request";
    case IBV_WC_REM_ACCESS_ERR:
      return "remote access error";
    case IBV_WC_REM_OP_ERR:
      return "remote operation error";
    case IBV_WC_RETRY_EXC_ERR:
      return "retries exceeded, the peer does not answer";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "retries exceeded, the peer has no receive posted";
    default:
      return "another error";
  }
}

}  // namespace braid::vhca
