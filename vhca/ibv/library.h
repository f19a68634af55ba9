// libibverbs and librdmacm, opened at run time. Private to vhca/ibv.
//
// Each function is looked up with the version of the ABI that it is called by (dlvsym): an
// unversioned look-up may find an older one. What the headers inline (posts, polls, arming) goes
// through the context and needs no symbol. Threads: any.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>

#include "base/result.h"
#include "vhca/ibv_device.h"

namespace braid::vhca::ibv {

/// Functions of libibverbs, without their prefix.
struct VerbsCalls {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_get_async_event) get_async_event = nullptr;
  decltype(&::ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  // The exported one fills only what its first version knew; see query_port() below.
  int (*query_port)(ibv_context*, uint8_t, _compat_ibv_port_attr*) = nullptr;
  decltype(&::ibv_query_gid) query_gid = nullptr;
  decltype(&::ibv_query_pkey) query_pkey = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, size_t, int) = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_resize_cq) resize_cq = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&::ibv_create_srq) create_srq = nullptr;
  decltype(&::ibv_modify_srq) modify_srq = nullptr;
  decltype(&::ibv_query_srq) query_srq = nullptr;
  decltype(&::ibv_destroy_srq) destroy_srq = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_query_qp) query_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
};

/// Functions of librdmacm, without their prefix.
struct CmCalls {
  decltype(&::rdma_create_event_channel) create_event_channel = nullptr;
  decltype(&::rdma_destroy_event_channel) destroy_event_channel = nullptr;
  decltype(&::rdma_create_id) create_id = nullptr;
  decltype(&::rdma_destroy_id) destroy_id = nullptr;
  decltype(&::rdma_bind_addr) bind_addr = nullptr;
  decltype(&::rdma_resolve_addr) resolve_addr = nullptr;
  decltype(&::rdma_resolve_route) resolve_route = nullptr;
  decltype(&::rdma_connect) connect = nullptr;
  decltype(&::rdma_listen) listen = nullptr;
  decltype(&::rdma_accept) accept = nullptr;
  decltype(&::rdma_reject) reject = nullptr;
  decltype(&::rdma_disconnect) disconnect = nullptr;
  decltype(&::rdma_get_cm_event) get_cm_event = nullptr;
  decltype(&::rdma_ack_cm_event) ack_cm_event = nullptr;
  decltype(&::rdma_migrate_id) migrate_id = nullptr;
  decltype(&::rdma_notify) notify = nullptr;
  decltype(&::rdma_establish) establish = nullptr;
  decltype(&::rdma_init_qp_attr) init_qp_attr = nullptr;
};

class Library {
 public:
  /// kNotSupported names the library that is missing or too old. What was opened stays so: drivers
  /// that libibverbs has loaded cannot be unloaded.
  static base::Result<std::shared_ptr<const Library>> load(const IbvOptions& options);

  VerbsCalls verbs;
  CmCalls cm;

  /// All of the attributes that the driver knows. 0 or a positive errno.
  int query_port(ibv_context* context, uint8_t port, ibv_port_attr& out) const;
};

}  // namespace braid::vhca::ibv
