// Exports: this device's segments that hold registered memory, and the peers that must know them.
//
// A peer reaches memory of the PD of its QP only. So a segment is announced by the connections of a
// PD when the first MR of that PD is registered in it, before its rkey can be known to anybody, and
// retired after the last MR of all: a peer maps it once, whatever connections told it.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/host.h"
#include "vhca/soft/inhost/channel.h"
#include "vhca/soft/mr_table.h"

namespace braid::vhca::soft::inhost {

class Exports {
 public:
  explicit Exports(base::Host& host) : host_(host) {}

  /// Where peers find this memory: in a segment, or kForeignMemory.
  MrPlace place(const std::byte* address, uint64_t length_bytes, uint32_t pd);
  /// Pairs with place(), after the key is gone and peers were fenced.
  void release(const MrPlace& place);

  /// The segments that a peer has been told of before it has joined.
  using Told = std::set<uint32_t>;
  /// Tells the peer of a QP of this PD of all segments now, and of each to come until leave().
  /// kWouldBlock: it has to read first what it was told of (`told`): call it again.
  base::Status join(std::shared_ptr<Channel> channel, uint32_t pd, Told& told);
  void leave(const Channel& channel);

 private:
  /// The connections of a PD know a segment from its first MR there on. With no MR left it is kept
  /// for those that are told of the segment's end.
  struct Member {
    uint32_t pd;
    uint64_t mrs;
  };
  struct Export {
    uint32_t id;
    base::Segment* segment;
    std::vector<Member> members;  // few
    Member* find(uint32_t pd);
    bool in_use() const;
  };
  struct Joined {
    std::shared_ptr<Channel> channel;
    uint32_t pd;
  };
  uint32_t choose_id_locked();
  bool anybody_locked(uint32_t pd) const;
  void tell_locked(uint32_t pd, const CmMessage& message, const base::Handle* handle);

  base::Host& host_;
  std::mutex mutex_;  // before the channels' locks
  uint32_t next_id_ = 0;
  std::vector<Export> exports_;
  std::vector<Joined> channels_;
};

}  // namespace braid::vhca::soft::inhost
