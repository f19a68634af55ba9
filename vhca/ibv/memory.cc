#include "vhca/ibv/memory.h"

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "vhca/ibv/words.h"

namespace braid::vhca::ibv {

IbvMr::IbvMr(base::Host& host, std::shared_ptr<const Library> library,
             std::shared_ptr<std::mutex> lock, ibv_mr* mr)
    : host_(host), library_(std::move(library)), lock_(std::move(lock)), mr_(mr) {
  lkey = mr->lkey;
  rkey = mr->rkey;
  address = static_cast<std::byte*>(mr->addr);
  length_bytes = mr->length;
}

IbvMr::~IbvMr() {
  const std::lock_guard guard(*lock_);
  const bool refused = library_->verbs.dereg_mr(mr_) != 0;
  for (IbvMw* const window : windows_) {
    if (refused) window->deallocate();
    std::erase(window->memories_, this);
  }
  if (!refused) return;
  const int err = std::abs(library_->verbs.dereg_mr(mr_));
  if (err == 0) return;
  host_.log().error("{} bytes at {:#x} stay registered with the RDMA device: {}", length_bytes,
                    reinterpret_cast<uintptr_t>(address),
                    verbs_error(err, "deregistering them").message());
  // Of windows that we do not know, a bug: their holders would reach what is used again. Any other
  // answer is that of a device that is gone.
  BRAID_ASSERT(err != EBUSY);
}

base::Result<std::unique_ptr<Mw>> IbvMw::create(std::shared_ptr<std::mutex> lock, ibv_pd* pd,
                                                ibv_mw_type type) {
  ibv_mw* const raw = ibv_alloc_mw(pd, type);
  if (raw == nullptr) {
    return verbs_error(
        errno, fmt::format("allocating a memory window of type {}", static_cast<int>(type)));
  }
  return std::unique_ptr<Mw>(new IbvMw(std::move(lock), raw));
}

IbvMw::IbvMw(std::shared_ptr<std::mutex> lock, ibv_mw* mw) : lock_(std::move(lock)), mw_(mw) {
  rkey = mw->rkey;
  type = mw->type;
}

IbvMw::~IbvMw() {
  const std::lock_guard guard(*lock_);
  deallocate();
  for (IbvMr* const memory : memories_) std::erase(memory->windows_, this);
}

void IbvMw::deallocate() {
  if (mw_ != nullptr) (void)ibv_dealloc_mw(std::exchange(mw_, nullptr));
}

int IbvMw::translate(const SendWr& ours, SendWr& drivers) {
  const std::lock_guard guard(*lock_);
  if (mw_ == nullptr || ours.bind_mw.bind_info.mr == nullptr) return EINVAL;
  auto& memory = static_cast<IbvMr&>(*static_cast<Mr*>(ours.bind_mw.bind_info.mr));
  if (std::find(memories_.begin(), memories_.end(), &memory) == memories_.end()) {
    memories_.push_back(&memory);
    memory.windows_.push_back(this);
  }
  drivers = ours;
  drivers.bind_mw.mw = mw_;
  drivers.bind_mw.bind_info.mr = memory.verbs();
  return 0;
}

void IbvMw::posted(uint32_t key) {
  const std::lock_guard guard(*lock_);
  if (mw_ != nullptr) mw_->rkey = key;
}

}  // namespace braid::vhca::ibv
