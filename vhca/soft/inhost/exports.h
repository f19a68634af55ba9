// Exports: this device's segments that hold registered memory, and the peers that must know them.
//
// A segment is announced to every connected peer when the first MR in it is registered, before
// its rkey can be known to anybody, and retired after the last.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/host.h"
#include "vhca/soft/inhost/channel.h"
#include "vhca/soft/mr_table.h"

namespace braid::vhca::soft::inhost {

class Exports {
 public:
  explicit Exports(base::Host& host) : host_(host) {}

  /// Where peers find this memory: in a segment, or kForeignMemory.
  MrPlace place(const std::byte* address, uint64_t length_bytes);
  /// Pairs with place(), after the key is gone and peers were fenced.
  void release(const MrPlace& place);

  /// Tells the peer of all segments now, and of each to come until leave().
  base::Status join(std::shared_ptr<Channel> channel);
  void leave(const Channel& channel);

 private:
  struct Export {
    uint32_t id;
    base::Segment* segment;
    uint64_t mrs;  // registrations in it
  };
  uint32_t choose_id_locked();
  void tell_all_locked(const CmMessage& message, const base::Handle* handle);

  base::Host& host_;
  std::mutex mutex_;  // before the channels' locks
  uint32_t next_id_ = 0;
  std::vector<Export> exports_;  // few
  std::vector<std::shared_ptr<Channel>> channels_;
};

}  // namespace braid::vhca::soft::inhost
