// Registered memory and memory windows of an RDMA device. Private to vhca/ibv.
//
// The kernel does not deregister memory that windows are bound to, and does not tell whether some
// are: peers take them away. So each piece of memory knows the windows that were ever bound to it,
// and deallocates them if its end is refused. If that is refused again, the program is told where
// it can go on, and stopped where it cannot. Threads: any; a lock of the device guards who knows
// whom.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "base/host.h"
#include "vhca/device.h"
#include "vhca/ibv/library.h"

namespace braid::vhca::ibv {

class IbvMw;

class IbvMr final : public Mr {
 public:
  IbvMr(base::Host& host, std::shared_ptr<const Library> library, std::shared_ptr<std::mutex> lock,
        ibv_mr* mr);
  ~IbvMr() override;
  ibv_mr* verbs() { return mr_; }

 private:
  friend class IbvMw;
  base::Host& host_;
  const std::shared_ptr<const Library> library_;
  const std::shared_ptr<std::mutex> lock_;
  ibv_mr* const mr_;
  std::vector<IbvMw*> windows_;  // lock_
};

class IbvMw final : public Mw {
 public:
  static base::Result<std::unique_ptr<Mw>> create(std::shared_ptr<std::mutex> lock, ibv_pd* pd,
                                                  ibv_mw_type type);
  ~IbvMw() override;
  /// The driver's request for ours, which binds this window. EINVAL: its memory is gone, and it
  /// with that.
  int translate(const SendWr& ours, SendWr& drivers);
  /// It was posted: rxe's driver finds the window by the key of its last bind.
  void posted(uint32_t key);

 private:
  friend class IbvMr;
  IbvMw(std::shared_ptr<std::mutex> lock, ibv_mw* mw);
  void deallocate();

  const std::shared_ptr<std::mutex> lock_;
  ibv_mw* mw_;                    // null: deallocated with its memory; lock_
  std::vector<IbvMr*> memories_;  // that it was ever bound to; lock_
};

}  // namespace braid::vhca::ibv
