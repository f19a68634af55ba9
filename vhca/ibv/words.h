// What goes wrong with RDMA devices, in words. Pure functions. Private to vhca/ibv.
#pragma once

#include <rdma/rdma_cma.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "vhca/verbs.h"

namespace braid::vhca::ibv {

/// Of a call of libibverbs or librdmacm that failed: with what mostly is behind it.
base::Error verbs_error(int sys_errno, std::string_view what);

/// The kernel's RDMA drivers do not answer: what is not loaded, or not allowed.
base::Error no_rdma_error(int sys_errno, std::string_view what);

/// Why there is no connection with `peer`: an event that is none of a connection's making. `status`
/// is the event's: a negative errno, or the reason of a REJ message.
base::Error connect_error(rdma_cm_event_type type, int status, std::string_view peer);

/// The peer's program said no itself: the private data of the reject is its.
bool rejected_by_program(rdma_cm_event_type type, int status);

std::string_view port_state_text(ibv_port_state state);

/// "10.0.0.1", "fd00::1" of a GID that stands for an IP address; empty for others, and for
/// link-local addresses, which mean nothing without their interface.
std::string gid_ip_text(const Gid& gid);

}  // namespace braid::vhca::ibv
