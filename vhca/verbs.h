// The values of verbs: work requests, scatter/gather elements, completions, attributes, access
// flags.
//
// They are those of <infiniband/verbs.h> (a header-only use: the libraries are opened at run time,
// if at all), so that a device copies a work request only if it must translate it. The manual pages
// ibv_post_send(3), ibv_poll_cq(3), ibv_modify_qp(3) are the specification of each field.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>

namespace braid::vhca {

using SendWr = ibv_send_wr;
using RecvWr = ibv_recv_wr;
using Sge = ibv_sge;
using Wc = ibv_wc;
using QpAttr = ibv_qp_attr;
using QpCap = ibv_qp_cap;
using SrqAttr = ibv_srq_attr;
using DeviceAttr = ibv_device_attr;
using PortAttr = ibv_port_attr;
using Gid = ibv_gid;

/// "RNR retry counter exceeded" ..., for logs and people.
std::string_view wc_status_text(ibv_wc_status status);

}  // namespace braid::vhca
