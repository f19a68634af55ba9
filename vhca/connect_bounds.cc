#include "vhca/connect_bounds.h"

#include <string_view>

namespace braid::vhca {

using base::Errc;
using base::make_error;
using base::Status;

namespace {

Status bound(std::string_view name, unsigned value, unsigned max) {
  if (value <= max) return base::ok_status();
  return make_error(Errc::kInvalid, "{} {} of a connection: at most {}", name, value, max);
}

}  // namespace

Status check_parameters(const ConnectParameters& parameters, size_t private_max) {
  if (parameters.private_data.size() > private_max) {
    return make_error(Errc::kInvalid, "{} bytes of private data; at most {} here",
                      parameters.private_data.size(), private_max);
  }
  BRAID_CHECK(bound("retry_count", parameters.retry_count, 7));
  BRAID_CHECK(bound("rnr_retry_count", parameters.rnr_retry_count, 7));
  BRAID_CHECK(bound("ack_timeout", parameters.ack_timeout, 31));
  BRAID_CHECK(bound("responder_resources", parameters.responder_resources, kConnectDepthMax));
  return bound("initiator_depth", parameters.initiator_depth, kConnectDepthMax);
}

}  // namespace braid::vhca
