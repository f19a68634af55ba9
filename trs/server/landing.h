// Landing: where the requests of one path arrive, if its chunks are guarded (docs/chunk-keys.md).
//
//   window: kOpen --request arrives, LOCAL_INV--> kLeaving --completed--> kClosed
//                 <------------ BIND_MW with the next key, ahead of the answer ---
//
// Threads: made and released on the home reactor; a window is that of the queue that uses its
// chunk.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/host.h"
#include "base/intrusive_list.h"
#include "trs/server.h"
#include "vhca/device.h"

namespace braid::trs::server {

/// The client's way into one chunk.
struct Window : base::ListNode {
  enum class State : uint8_t {
    kClosed,   // no key; a request has arrived, or nothing was granted yet
    kOpen,     // `key` reaches the chunk
    kLeaving,  // the key is being taken away; the request in the chunk is not looked at yet
  };
  State state = State::kClosed;
  uint32_t index = 0;         // of the chunk
  uint32_t key = 0;           // the last that was bound, or the first that will be
  uint32_t offset_bytes = 0;  // kLeaving: of the message of the request that has arrived
  std::unique_ptr<vhca::Mw> mw;
};

struct LandingOptions {
  uint32_t chunks = 0;
  uint32_t chunk_bytes = 0;
};

class Landing {
 public:
  /// kWindows or kCopy. An error of kWindows may be the device's: too few windows.
  static base::Result<std::unique_ptr<Landing>> create(base::Host& host, vhca::Pd& pd,
                                                       ChunkGuard guard,
                                                       const LandingOptions& options);
  /// No queue pair of the path is left. Never waits for a peer.
  void release(vhca::Pd& pd);

  std::span<std::byte> chunk(uint32_t index) {
    return {memory_->data() + size_t{index} * options_.chunk_bytes, options_.chunk_bytes};
  }
  Window& window(uint32_t index) { return windows_[index]; }
  /// Binds the window's key to its chunk.
  vhca::SendWr bind_of(const Window& window) const;
  uint32_t rkey() const { return mr_->rkey; }  // of all; with kCopy
  const std::shared_ptr<base::Segment>& memory() const { return memory_; }

 private:
  explicit Landing(const LandingOptions& options) : options_(options) {}
  base::Status make_windows(vhca::Pd& pd);

  const LandingOptions options_;
  std::shared_ptr<base::Segment> memory_;
  std::unique_ptr<vhca::Mr> mr_;
  std::unique_ptr<Window[]> windows_;
};

}  // namespace braid::trs::server
