#include "trs/server/landing.h"

namespace braid::trs {

std::string_view to_string(ChunkGuard guard) {
  switch (guard) {
    case ChunkGuard::kNone:
      return "open";
    case ChunkGuard::kWindows:
      return "windows";
    case ChunkGuard::kCopy:
      return "copy";
  }
  return "?";
}

namespace server {

base::Result<std::unique_ptr<Landing>> Landing::create(base::Host& host, vhca::Pd& pd,
                                                       ChunkGuard guard,
                                                       const LandingOptions& options) {
  std::unique_ptr<Landing> landing(new Landing(options));
  const size_t size_bytes = size_t{options.chunks} * options.chunk_bytes;
  BRAID_TRY(landing->memory_, host.create_segment(size_bytes, "trs landing"));
  const bool windows = guard == ChunkGuard::kWindows;
  // The key of memory that has windows opens nothing by itself.
  const int access =
      IBV_ACCESS_LOCAL_WRITE | (windows ? IBV_ACCESS_MW_BIND : IBV_ACCESS_REMOTE_WRITE);
  BRAID_TRY(landing->mr_, pd.reg_mr(landing->memory_->data(), size_bytes, access));
  if (windows) BRAID_CHECK(landing->make_windows(pd));
  return landing;
}

base::Status Landing::make_windows(vhca::Pd& pd) {
  windows_ = std::make_unique<Window[]>(options_.chunks);
  for (uint32_t i = 0; i < options_.chunks; ++i) {
    Window& window = windows_[i];
    window.index = i;
    BRAID_TRY(window.mw, pd.alloc_mw(IBV_MW_TYPE_2));
    window.key = ibv_inc_rkey(window.mw->rkey);
  }
  return {};
}

/// The memory goes before its windows: it is what a client that stands still in the middle of a
/// copy keeps, and nobody waits for it.
void Landing::release(vhca::Pd& pd) {
  if (mr_ != nullptr) pd.dereg_mr(std::move(mr_), memory_);
  windows_.reset();
}

vhca::SendWr Landing::bind_of(const Window& window) const {
  vhca::SendWr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = window.mw.get();
  wr.bind_mw.rkey = window.key;
  wr.bind_mw.bind_info.mr = mr_.get();
  wr.bind_mw.bind_info.addr =
      reinterpret_cast<uint64_t>(memory_->data() + size_t{window.index} * options_.chunk_bytes);
  wr.bind_mw.bind_info.length = options_.chunk_bytes;
  wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
  return wr;
}

}  // namespace server
}  // namespace braid::trs
