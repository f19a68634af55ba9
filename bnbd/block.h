// The block seam (design decision D6): one small interface between front ends, filters and devices.
//
// Backends (file, memory, null) and the remote device implement BlockDevice; the server, front ends
// (FUSE + loop, nbd.ko) and filters consume it. Any front end works with any device.
//
// Threads: a device belongs to one reactor: submit() there, `done` runs there; create_region() on
// any. A device that takes requests on further reactors has a BlockDevice for each (queues()).
// Ownership: between submit() and `done` the request, its ListNode and its buffer belong to the
// device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/intrusive_list.h"
#include "base/result.h"
#include "base/single_writer.h"
#include "base/task.h"

namespace braid::base {
class File;
class Reactor;
}  // namespace braid::base
namespace braid::vhca {
class Mr;
}

namespace braid::bnbd {

enum class BlockOp : uint8_t { kRead, kWrite, kFlush, kDiscard, kWriteZeroes, kSecureErase };
std::string_view to_string(BlockOp op);

/// Memory that a device can move data to and from without a copy. Made by
/// BlockDevice::create_region.
class Region {
 public:
  virtual ~Region() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;
  virtual const vhca::Mr* mr() const = 0;  // null for local devices
  /// Names the registration domain of `mr`: a device uses regions of its own domain as they are,
  /// and copies from and to others.
  virtual const void* domain() const { return nullptr; }
};

/// Bytes in a region. `region` may be null for devices that need no registration (local backends
/// take any memory).
struct BufferRef {
  const Region* region = nullptr;
  std::byte* address = nullptr;
};

/// Of BlockDevice::note_flush(): for what a flush speaks.
struct FlushNote {
  std::array<uint64_t, 3> words{};  // the device's
  bool taken = false;               // submit() uses it, and clears this
};

/// Of BlockDevice::note_told(): what requests have done whose user has not heard of it.
struct Untold {
  std::array<uint32_t, 3> words{};  // the device's
  bool any() const { return (words[0] | words[1] | words[2]) != 0; }
};

struct BlockRequest : base::ListNode {
  BlockOp op = BlockOp::kRead;
  bool force_unit_access = false;  // all but read and flush: durable when done
  bool preflush = false;  // all writes done before the submission are durable before this one runs
  bool no_unmap = false;  // write-zeroes: keep the space allocated
  /// As base::IoOp::priority; a hint. 0: none.
  uint16_t priority = 0;
  bool may_lend = false;      // read: the device may answer from its own memory, see `lent`
  uint64_t offset_bytes = 0;  // multiples of the logical block
  /// Read, write: at most max_io_bytes; discard, write-zeroes, secure erase: their own maxima;
  /// flush: 0.
  uint64_t length_bytes = 0;
  BufferRef buffer;  // read, write
  /// Set by the device when it answers a read from its lendable memory instead of filling `buffer`:
  /// points into BlockDevice::lendable_memory() and is valid until the device is closed; the
  /// content may change under later writes, as on any disk. Null otherwise.
  std::byte* lent = nullptr;
  /// Runs exactly once, on the device's reactor, never inside submit() of an asynchronous device; a
  /// memory or null device may run it inside submit().
  void (*done)(BlockRequest& request, base::Errc status) = nullptr;
  void* context = nullptr;
  /// The device's own notes between submit() and `done`; nobody else touches them.
  std::array<uint64_t, 3> device_words{};
  FlushNote flush_note;
  /// Its user hears of its end after `done`: its answer is still to be sent, or another part of
  /// what he asked for is to follow. Of a change, and of the failure of a flush, the device notes
  /// that in `untold`, which who submits hands over by note_told().
  bool told_later = false;
  Untold untold;

  bool flushes() const { return op == BlockOp::kFlush || preflush; }
};

/// The largest logical or physical block, both powers of two: what the protocol can tell.
inline constexpr uint32_t kBlockBytesMax = 32768;

/// What a device is and may be asked. Bytes throughout.
struct BlockInfo {
  std::string identity;  // names the same bytes across restarts
  /// Changes when unflushed writes may have been lost (the machine's boot).
  uint64_t incarnation = 0;
  uint64_t size_bytes = 0;
  uint32_t logical_block_bytes = 512;
  uint32_t physical_block_bytes = 4096;
  uint32_t max_io_bytes = 1 << 20;
  uint64_t max_discard_bytes = 0;       // 0: cannot
  uint64_t max_write_zeroes_bytes = 0;  // 0: cannot
  uint64_t max_secure_erase_bytes = 0;  // 0: cannot
  uint32_t discard_granularity_bytes = 0;
  uint32_t discard_alignment_bytes = 0;  // where the first whole grain begins
  uint32_t queue_depth = 128;            // more than this is queued inside
  bool read_only = false;
  bool write_cache = true;  // flush matters
  bool fua = true;
  bool rotational = false;
};

/// Counted by every device, on its thread.
struct BlockStatistics {
  uint64_t reads = 0, read_bytes = 0, writes = 0, write_bytes = 0;
  uint64_t flushes = 0, discards = 0, write_zeroes = 0, secure_erases = 0, errors = 0;
  uint64_t copies = 0;  // payload copies made because memory was not the device's own region
  uint64_t lent = 0;    // reads answered from the device's own memory
  uint64_t zeroes_written = 0;  // write-zeroes done as writes because the medium knows no better

  /// Counts a request at its end.
  void count(const BlockRequest& request, base::Errc status);
  /// From another thread than that which counts: of no one moment.
  BlockStatistics read() const;
  void add(const BlockStatistics& other);
};

class BlockDevice;

/// A device as one reactor submits to it.
struct BlockQueue {
  base::Reactor* reactor = nullptr;
  BlockDevice* device = nullptr;
};

class BlockDevice {
 public:
  virtual ~BlockDevice() = default;  // no request in flight
  virtual const BlockInfo& info() const = 0;
  /// Takes the request; it ends by `done`. What breaks a rule of BlockInfo ends with kInvalid,
  /// kOutOfRange, kReadOnly or kNotSupported and changes nothing.
  virtual void submit(BlockRequest& request) = 0;
  /// Who submits a flush, or a request with preflush, later than it came to him has it noted when
  /// it comes: it speaks for what its user knew then. If it fails because acknowledged writes may
  /// be lost, that is no word about those that its user heard of later, and another flush has to
  /// fail for them. A note of an earlier moment than that is right, too, but makes a further flush
  /// fail that need not. On the reactor of submit(); does nothing to a note that is taken.
  virtual void note_flush(FlushNote& note) { (void)note; }
  /// The user hears now of the end of requests that were `told_later`: who asks for a flush from
  /// now on may speak for them, and knows of what failed. `heard` false: he never will, so that
  /// another flush has to tell what this one was to. On the reactor of their submit(), before the
  /// device is destroyed; empties `untold`. What is never handed over makes every flush behind a
  /// loss fail.
  virtual void note_told(Untold& untold, bool heard) { (void)heard, untold = {}; }
  /// Any thread, while the device lives: memory of tens of MiB takes its time.
  virtual base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) = 0;
  /// The memory that `lent` points into; empty if the device never lends.
  virtual std::span<std::byte> lendable_memory() { return {}; }
  /// The content itself, of a device that is memory, as long as the device; else empty. What is
  /// received for a write may be put at its place there before the write is submitted, with that
  /// place as its buffer: nothing is copied then. An asker that never submits it has changed what
  /// it put, at any byte: a write that was not answered.
  virtual std::span<std::byte> content_memory() { return {}; }
  /// Where requests may be submitted, the device's own reactor first; empty: there only. Each is a
  /// BlockDevice on its reactor's thread: submit() and `done`, info(), statistics() of what came
  /// by it. A flush covers what was done before its submission by whichever of them. They live as
  /// long as the device; regions are good for all of them.
  virtual std::vector<BlockQueue> queues() { return {}; }
  virtual BlockStatistics statistics() const = 0;
  /// Makes the device so long: beyond a new end nothing begins any more, and what is under way
  /// there ends first. Whole blocks. kNotSupported if it cannot be; kBusy while it is being done;
  /// kTimedOut if requests beyond the new end do not end; then nothing has changed. The device
  /// outlives it.
  virtual base::Task<base::Status> resize(uint64_t size_bytes);
  /// Looks whether others have changed the size of what it is made of, and follows. True if so. A
  /// last block that is not whole does not count. The device outlives the task.
  virtual base::Task<base::Result<bool>> refresh_size();
  /// The file that holds the content, for its note (base::File::note); null if there is none.
  virtual std::shared_ptr<base::File> file() const { return nullptr; }
};

/// kOk, or what is wrong with the request by `info`: kInvalid, kOutOfRange, kReadOnly or
/// kNotSupported. Each device and the server check by this one function.
base::Errc check(const BlockInfo& info, const BlockRequest& request);

}  // namespace braid::bnbd
