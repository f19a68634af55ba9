#include "vhca/ibv/library.h"

#include <dlfcn.h>

#include <cstring>

namespace braid::vhca::ibv {
namespace {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

/// One opened library, and the first function that it lacks.
class Opened {
 public:
  static Result<Opened> open(const std::string& name, const char* package) {
    // Lazy: drivers that libibverbs loads may have functions of no interest that do not resolve.
    void* const handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle != nullptr) return Opened(handle, name, package);
    const char* const why = ::dlerror();
    return make_error(Errc::kNotSupported,
                      "RDMA devices need {} (Debian's package {}), which cannot be opened: {}",
                      name, package, why != nullptr ? why : "no reason given");
  }

  template <typename Function>
  void find(Function& out, const char* symbol, const char* version) {
    void* const found = ::dlvsym(handle_, symbol, version);
    if (found == nullptr && missing_.empty()) missing_ = fmt::format("{}@{}", symbol, version);
    std::memcpy(&out, &found, sizeof out);
  }
  Status complete() const {
    if (missing_.empty()) return base::ok_status();
    return make_error(
        Errc::kNotSupported,
        "{} is too old for RDMA devices, it lacks {}: install {} of rdma-core 23 or newer", name_,
        missing_, package_);
  }

 private:
  Opened(void* handle, std::string name, const char* package)
      : handle_(handle), name_(std::move(name)), package_(package) {}

  void* handle_;
  std::string name_;
  const char* package_;
  std::string missing_;
};

Status find_verbs(const std::string& name, VerbsCalls& calls) {
  BRAID_TRY(Opened library, Opened::open(name, "libibverbs1"));
  constexpr const char* kV10 = "IBVERBS_1.0";
  constexpr const char* kV11 = "IBVERBS_1.1";
  library.find(calls.get_device_list, "ibv_get_device_list", kV11);
  library.find(calls.free_device_list, "ibv_free_device_list", kV11);
  library.find(calls.open_device, "ibv_open_device", kV11);
  library.find(calls.close_device, "ibv_close_device", kV11);
  library.find(calls.get_async_event, "ibv_get_async_event", kV11);
  library.find(calls.ack_async_event, "ibv_ack_async_event", kV11);
  library.find(calls.query_device, "ibv_query_device", kV11);
  library.find(calls.query_port, "ibv_query_port", kV11);
  library.find(calls.query_gid, "ibv_query_gid", kV11);
  library.find(calls.query_pkey, "ibv_query_pkey", kV11);
  library.find(calls.alloc_pd, "ibv_alloc_pd", kV11);
  library.find(calls.dealloc_pd, "ibv_dealloc_pd", kV11);
  library.find(calls.reg_mr, "ibv_reg_mr", kV11);
  library.find(calls.dereg_mr, "ibv_dereg_mr", kV11);
  library.find(calls.create_comp_channel, "ibv_create_comp_channel", kV10);
  library.find(calls.destroy_comp_channel, "ibv_destroy_comp_channel", kV10);
  library.find(calls.create_cq, "ibv_create_cq", kV11);
  library.find(calls.destroy_cq, "ibv_destroy_cq", kV11);
  library.find(calls.resize_cq, "ibv_resize_cq", kV11);
  library.find(calls.get_cq_event, "ibv_get_cq_event", kV11);
  library.find(calls.ack_cq_events, "ibv_ack_cq_events", kV11);
  library.find(calls.create_srq, "ibv_create_srq", kV11);
  library.find(calls.modify_srq, "ibv_modify_srq", kV11);
  library.find(calls.query_srq, "ibv_query_srq", kV11);
  library.find(calls.destroy_srq, "ibv_destroy_srq", kV11);
  library.find(calls.create_qp, "ibv_create_qp", kV11);
  library.find(calls.modify_qp, "ibv_modify_qp", kV11);
  library.find(calls.query_qp, "ibv_query_qp", kV11);
  library.find(calls.destroy_qp, "ibv_destroy_qp", kV11);
  return library.complete();
}

Status find_cm(const std::string& name, CmCalls& calls) {
  BRAID_TRY(Opened library, Opened::open(name, "librdmacm1"));
  constexpr const char* kV10 = "RDMACM_1.0";
  constexpr const char* kV12 = "RDMACM_1.2";
  library.find(calls.create_event_channel, "rdma_create_event_channel", kV10);
  library.find(calls.destroy_event_channel, "rdma_destroy_event_channel", kV10);
  library.find(calls.create_id, "rdma_create_id", kV10);
  library.find(calls.destroy_id, "rdma_destroy_id", kV10);
  library.find(calls.bind_addr, "rdma_bind_addr", kV10);
  library.find(calls.resolve_addr, "rdma_resolve_addr", kV10);
  library.find(calls.resolve_route, "rdma_resolve_route", kV10);
  library.find(calls.connect, "rdma_connect", kV10);
  library.find(calls.listen, "rdma_listen", kV10);
  library.find(calls.accept, "rdma_accept", kV10);
  library.find(calls.reject, "rdma_reject", kV10);
  library.find(calls.disconnect, "rdma_disconnect", kV10);
  library.find(calls.get_cm_event, "rdma_get_cm_event", kV10);
  library.find(calls.ack_cm_event, "rdma_ack_cm_event", kV10);
  library.find(calls.migrate_id, "rdma_migrate_id", kV10);
  library.find(calls.notify, "rdma_notify", kV10);
  library.find(calls.establish, "rdma_establish", kV12);
  library.find(calls.init_qp_attr, "rdma_init_qp_attr", kV12);
  return library.complete();
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::load(const IbvOptions& options) {
  auto library = std::make_shared<Library>();
  BRAID_CHECK(find_verbs(options.ibverbs, library->verbs));
  BRAID_CHECK(find_cm(options.rdmacm, library->cm));
  return std::shared_ptr<const Library>(std::move(library));
}

int Library::query_port(ibv_context* context, uint8_t port, ibv_port_attr& out) const {
  std::memset(&out, 0, sizeof out);
  verbs_context* const driver = verbs_get_ctx_op(context, query_port);
  if (driver != nullptr) return driver->query_port(context, port, &out, sizeof out);
  return verbs.query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&out));
}

}  // namespace braid::vhca::ibv
