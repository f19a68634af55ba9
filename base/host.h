// Host: all of the operating system that Braid uses, as one interface (design decision D3).
//
// Two implementations: LinuxHost (base/linux/) and SimHost (base/sim/), on which the shipping code
// of every layer runs unchanged under a virtual clock, with faults, replayable from a seed. Nothing
// in a simulated layer may call the operating system otherwise, keep globals or thread_locals, or
// let addresses or hash order decide anything.
//
// A Host is one process. After a simulated kill every call fails with Errc::kDead or does nothing.
// Threads: Host and its facets may be used from any thread unless stated; an IoQueue belongs to one
// reactor thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/intrusive_list.h"
#include "base/result.h"

namespace braid::base {

class File;
class IoShares;
class Logger;
class StreamListener;
class StreamSocket;
struct SocketAddress;

inline constexpr uint64_t kNever = UINT64_MAX;  // a deadline that does not come
inline constexpr uint64_t kMicrosecond = 1'000;
inline constexpr uint64_t kMillisecond = 1'000'000;
inline constexpr uint64_t kSecond = 1'000'000'000;

/// An operating-system object that can be passed to another process of the host (a file
/// descriptor). Closes on destruction.
class Handle {
 public:
  virtual ~Handle() = default;
  virtual int fd() const = 0;  // -1 in simulation
  virtual Result<std::unique_ptr<Handle>> duplicate() const = 0;
};

/// A flag that wakes a sleeping reactor, here or in another process (eventfd). signal() from any
/// thread.
class Event {
 public:
  virtual ~Event() = default;
  virtual void signal() = 0;
  /// Clears the flag; true if it was set. Never blocks.
  virtual bool consume() = 0;
  virtual const Handle& handle() const = 0;
};

/// Memory that other processes can map (memfd). Zero-filled, page-aligned; unmapped on destruction.
class Segment {
 public:
  virtual ~Segment() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;
  virtual const Handle& handle() const = 0;
  /// Makes a range of whole pages zero and gives its memory back to the system where that can be.
  /// Any thread; who reads meanwhile sees old bytes or zeroes.
  virtual void discard(size_t offset, size_t length) { std::memset(data() + offset, 0, length); }
};

/// What an asynchronous file operation does.
enum class IoOpcode : uint8_t {
  kRead,
  kWrite,
  kFlush,    // everything written before is durable when it completes (fdatasync)
  kDiscard,  // the range reads as zeroes afterwards and its space may be given back (punch hole)
  kWriteZeroes,  // the range reads as zeroes afterwards and stays allocated
};

/// How urgent an operation is beside others of the same disk, as Linux's ioprio: the class in the
/// upper 3 bits, a level from 0, the most urgent, to 7 in the lowest. 0: as the process has it.
inline constexpr unsigned kIoPriorityClassShift = 13;
inline constexpr uint16_t kIoPriorityLevelMask = 7;
enum class IoPriorityClass : uint16_t { kNone = 0, kRealTime = 1, kBestEffort = 2, kIdle = 3 };

/// One asynchronous file operation. The caller owns it and the buffer until `done` runs, exactly
/// once, on the reactor.
struct IoOp : ListNode {
  IoOpcode opcode = IoOpcode::kRead;
  bool force_unit_access = false;  // a write that is durable when it completes (RWF_DSYNC)
  uint16_t priority = 0;           // read, write: a hint to the disk's scheduler
  File* file = nullptr;
  std::byte* buffer = nullptr;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;  // a read or write: at most 1 GiB
  /// kOk means all of the length. Short transfers are continued inside; past the end is
  /// kOutOfRange.
  void (*done)(IoOp& op, Errc status) = nullptr;
  void* context = nullptr;        // for `done`
  uint64_t progressed_bytes = 0;  // private to the IoQueue
  Errc refused = Errc::kOk;       // private to the IoQueue
  unsigned refusals = 0;          // private to the IoQueue: "try again", in a row
};

/// A file's part of what an IoQueue has under way: private to it (base/io_shares.h).
struct FileShare : ListNode {
  IntrusiveList<IoOp> waiting;  // for a place in the kernel
  unsigned in_kernel = 0;
  const IoShares* of = nullptr;
};

/// An open file or disk. Data moves only by IoQueue::submit. All its operations go to one
/// IoQueue. Destroy it only when none is in flight.
class File {
 public:
  virtual ~File() = default;
  struct Info {
    uint64_t size_bytes = 0;
    uint32_t logical_block_bytes =
        512;  // offsets, lengths and buffers must be multiples of it when `direct`
    uint32_t physical_block_bytes = 512;
    bool direct = false;  // bypasses the page cache (O_DIRECT)
    bool block_device = false;
    bool read_only = false;
    bool can_discard = false;
    bool can_write_zeroes = false;
    bool can_secure_erase = false;
    uint32_t discard_granularity_bytes = 0;  // of a disk; 0: it does not say
    uint32_t discard_alignment_bytes = 0;    // of a disk: where its first whole grain begins
    std::string identity;  // names the same bytes across restarts: "file:<fs id>:<inode>:<birth>",
                           // where it has no birth its generation; or the disk's serial
  };
  virtual const Info& info() const = 0;
  /// A word kept beside the content, for as long as that (an extended attribute): what set_note()
  /// was given last, 0 if it never was; durable when set_note() returns. Both block: call them
  /// through offload. kNotSupported: there is no place for it (disks, some file systems).
  virtual Result<uint64_t> note() const {
    return make_error(Errc::kNotSupported, "this kind of file keeps no note");
  }
  virtual Status set_note(uint64_t note) {
    return make_error(Errc::kNotSupported, "this kind of file keeps no note: not {}", note);
  }
  /// Two words kept likewise, though not durably: after a loss of power they are these, or what was
  /// there before. Zeroes if they never were set. Both block.
  using Mark = std::array<uint64_t, 2>;
  virtual Result<Mark> mark() const {
    return make_error(Errc::kNotSupported, "this kind of file keeps no mark");
  }
  virtual Status set_mark(const Mark& mark) {
    return make_error(Errc::kNotSupported, "this kind of file keeps no mark: not {}", mark[0]);
  }
  /// The size now, which others may have changed since info() or adopt_size(). Blocks: offload it.
  virtual Result<uint64_t> current_size() const {
    return make_error(Errc::kNotSupported, "this kind of file has the size that it has");
  }
  /// Makes a file so long, durable when it returns: what is cut off is lost, what is new reads as
  /// zeroes. Operations go up to adopt_size() all the same. kNotSupported for disks. Blocks.
  virtual Status set_size(uint64_t size_bytes) {
    return make_error(Errc::kNotSupported, "this kind of file cannot have {} bytes", size_bytes);
  }
  /// Has the disk destroy what a range holds, also where it keeps copies by itself; it reads as
  /// anything afterwards. kNotSupported: it cannot, see Info::can_secure_erase. Blocks for long.
  virtual Status secure_erase(uint64_t offset_bytes, uint64_t length_bytes) {
    return make_error(Errc::kNotSupported, "nothing erases {} bytes at {} of a file for good",
                      length_bytes, offset_bytes);
  }
  /// From now on info() says so, and operations go up to there. On the thread of the file's
  /// IoQueue.
  virtual void adopt_size(uint64_t size_bytes) { (void)size_bytes; }
  FileShare share;  // private to the IoQueue
};

/// Runs `ready` on the reactor each time a watched thing has become ready. The caller owns it;
/// unwatch before destroying.
struct Watch : ListNode {
  void (*ready)(Watch& watch) = nullptr;
  void* context = nullptr;
  uint64_t cookie = 0;  // private to the IoQueue
};

/// One reactor's share of the operating system: asynchronous files, readiness, sleep. One per
/// reactor, on its thread only (wake() apart).
class IoQueue {
 public:
  virtual ~IoQueue() = default;
  /// Takes the operation; it reaches the disk at the next poll() at the latest. Completion never
  /// runs inside submit().
  virtual void submit(IoOp& op) = 0;
  /// Hands over what was submitted, runs `done` and `ready` of what has happened. True if anything
  /// ran. Never blocks.
  virtual bool poll() = 0;
  /// Operations in flight (a reactor with some keeps polling longer).
  virtual unsigned in_flight() const = 0;
  /// Operations that have ended so far.
  virtual uint64_t completed() const = 0;
  /// Sleeps until something happens, wake() is called, or the deadline (Host::now_ns clock).
  /// LinuxHost only: a simulated reactor is never asked to wait, its world decides when it runs.
  virtual void wait(uint64_t deadline_ns) = 0;
  /// Ends the present or next wait(). Any thread; cheap when the reactor is awake.
  virtual void wake() = 0;
  virtual void watch(Event& event, Watch& watch) = 0;
  /// Level-triggered readability of a descriptor or of a Socket. The callback must drain it.
  virtual void watch_readable(const Handle& handle, Watch& watch) = 0;
  /// Level-triggered room to send, of a StreamSocket. A connection that was made, or could not be,
  /// counts. The callback must fill it or unwatch.
  virtual void watch_writable(const Handle& handle, Watch& watch) = 0;
  virtual void unwatch(Watch& watch) = 0;
};

/// That something about this machine's interfaces, their links or addresses, may have changed:
/// has_link() may say otherwise than before. One thread at a time.
class LinkNews {
 public:
  virtual ~LinkNews() = default;
  /// Readable while there is news that was not taken.
  virtual const Handle& handle() const = 0;
  /// Takes what there is, within a bound; false: there was none. Never blocks.
  virtual bool take() = 0;
};

/// Who is at the other end of a local socket.
struct PeerIdentity {
  int pid = 0;
  uint32_t uid = 0;
};

/// A connected local socket that keeps message boundaries and carries handles (unix
/// SOCK_SEQPACKET). Non-blocking.
class LocalSocket {
 public:
  virtual ~LocalSocket() = default;
  /// All or nothing; kWouldBlock when the peer is slow; kDisconnected when it is gone. At most 64
  /// KiB and 16 handles.
  virtual Status send(std::span<const std::byte> message,
                      std::span<const Handle* const> handles = {}) = 0;
  /// The length of one message; kWouldBlock when there is none; kDisconnected when the peer closed
  /// or died. Handles that came with it are appended.
  virtual Result<size_t> receive(std::span<std::byte> buffer,
                                 std::vector<std::unique_ptr<Handle>>& handles) = 0;
  virtual PeerIdentity peer() const = 0;
  virtual const Handle& handle()
      const = 0;  // for IoQueue::watch_readable (hang-up counts as readable)
};

/// A listening local socket with an abstract name: gone with the process, whatever kills it.
class LocalListener {
 public:
  virtual ~LocalListener() = default;
  virtual Result<std::unique_ptr<LocalSocket>> accept() = 0;  // kWouldBlock when nobody waits
  virtual const Handle& handle() const = 0;
};

/// Another process, for copying to and from its memory (process_vm_*, /proc/PID/mem, pidfd).
class PeerProcess {
 public:
  virtual ~PeerProcess() = default;
  virtual bool alive() const = 0;
  /// Copies from local pieces to one remote range / from one remote range to local pieces.
  /// kPermission, kDead-peer as kDisconnected, kOutOfRange for an unmapped address. Lowest address
  /// first, in order.
  virtual Errc write(uint64_t remote_address,
                     std::span<const std::span<const std::byte>> pieces) = 0;
  virtual Errc read(uint64_t remote_address, std::span<const std::span<std::byte>> pieces) = 0;
};

/// How to open a file beneath a root.
struct OpenOptions {
  bool read_only = false;
  bool direct = true;  // O_DIRECT where the file system can; Info says what was got
  bool allow_block_device = false;
  /// Lock the file over all processes of the machine (flock): shared if read_only, else exclusive;
  /// kBusy if another holds it. The lock lasts until the last operation in flight has ended, also
  /// after a kill, so that a write of a dead process cannot land behind those of its successor.
  bool lock = false;
  bool follow_links_beneath = true;  // links that stay beneath the root
};

class Thread {
 public:
  virtual ~Thread() = default;  // joins
};

class Host {
 public:
  virtual ~Host() = default;

  // --- time, entropy, identity
  virtual uint64_t now_ns() = 0;         // monotonic; virtual in simulation
  virtual uint64_t wall_clock_ns() = 0;  // since 1970; for people only
  virtual void random(
      std::span<std::byte> out) = 0;  // the kernel's generator; seeded in simulation
  virtual std::string boot_id() = 0;  // changes when this machine restarts
  virtual std::string host_name() = 0;
  virtual int process_id() = 0;
  /// The effective user, as PeerIdentity::uid names it to others.
  virtual uint32_t user_id() { return 0; }
  /// Whether an address, as text, is one of this machine's: of an interface, or of loopback.
  virtual bool is_local_address(const std::string& ip) {
    (void)ip;
    return true;
  }
  virtual Logger& log() = 0;
  /// Whether the planted bug of this name is switched on. Only ever in a simulated world, to prove
  /// that its checkers find it (docs/simulator.md). Control and recovery paths only.
  virtual bool mutant(std::string_view) const { return false; }
  /// What the kernel says when an adapter asks for one more thing that it locks memory for (`what`:
  /// "a queue pair"). For software adapters, of whose things it knows nothing: always well on
  /// Linux; kNoMemory in a simulated process that is short of memory. Control paths only.
  virtual Status adapter_memory(std::string_view what) {
    (void)what;
    return ok_status();
  }

  // --- reactors, threads, blocking work
  /// Lets another thread use this core: a spinning reactor calls it after each empty round.
  virtual void yield() {}
  virtual Result<std::unique_ptr<IoQueue>> create_io_queue() = 0;
  /// A thread that runs `body`; joined by the Thread's destructor. Not in simulation
  /// (kNotSupported): worlds drive reactors.
  virtual Result<std::unique_ptr<Thread>> start_thread(std::string name,
                                                       std::function<void()> body) = 0;
  /// Runs `work` on a worker, for calls that may wait, even without end. Any thread. See
  /// Reactor::offload.
  virtual void execute(std::function<void()> work) = 0;
  /// Whether a worker waits for work: who asks for some now needs no new thread, unless another is
  /// faster. Any thread.
  virtual bool worker_is_idle() { return true; }
  virtual std::unique_ptr<Event> create_event() = 0;
  virtual Result<std::unique_ptr<Event>> adopt_event(std::unique_ptr<Handle> handle) = 0;

  // --- files
  /// Opens `name` beneath the directory `root` (openat2: beneath, no magic links). Blocks: call it
  /// through offload. Each refusal names the name and the rule: empty, too long, absolute, "..",
  /// link out of the root, FIFO, device; never the root, as its words may go to a remote client.
  virtual Result<std::unique_ptr<File>> open_beneath(const std::string& root,
                                                     const std::string& name,
                                                     const OpenOptions& options) = 0;

  /// This process serves the kernel a block device of this name ("loop3", below /dev), from now on
  /// or no more: open_beneath() refuses what lies on it (kInvalid). Any thread.
  virtual void serves_disk(const std::string& name, bool serves) {
    (void)name;
    (void)serves;
  }

  // --- memory and processes of this host. Segments are zero, and take memory as they are used.
  virtual Result<std::unique_ptr<Segment>> create_segment(size_t size_bytes,
                                                          std::string_view purpose) = 0;
  /// As create_segment, but only this process can write to it: who maps its handle can only read,
  /// and find_segment does not find it.
  virtual Result<std::unique_ptr<Segment>> create_published_segment(size_t size_bytes,
                                                                    std::string_view purpose) {
    return create_segment(size_bytes, purpose);
  }
  /// The memory of a handle that a peer passed. Uses up no descriptor: handle() of the result is
  /// empty (-1).
  virtual Result<std::unique_ptr<Segment>> map_segment(std::unique_ptr<Handle> handle,
                                                       size_t size_bytes) = 0;
  /// The segment made by create_segment that holds all of [address, address + length), or null. Any
  /// thread.
  virtual Segment* find_segment(const void* address, size_t length) = 0;
  virtual Result<std::unique_ptr<PeerProcess>> open_process(const PeerIdentity& identity) = 0;
  /// Makes every store of every thread of every registered Braid process, made before now, visible,
  /// and orders it before our later loads (membarrier GLOBAL_EXPEDITED). The slow half of an
  /// asymmetric fence: fast sides use a compiler fence.
  virtual void heavy_fence() = 0;
  /// False: this process is not reached by heavy_fence() of others, or cannot reach them. Then the
  /// fast sides here, and those of the peers that share memory with it, use a full fence
  /// (std::atomic_thread_fence(seq_cst)); tell the peer in the handshake.
  virtual bool has_heavy_fence() { return true; }
  /// kNotSupported in simulation (in-host wires do not run there).
  virtual Result<std::unique_ptr<LocalListener>> listen_local(std::string_view abstract_name) = 0;
  virtual Result<std::unique_ptr<LocalSocket>> connect_local(std::string_view abstract_name) = 0;

  // --- the network (base/stream_socket.h)
  /// kExists: the address is in use; kNotFound: it is none of this machine's; kInvalid: it is no IP
  /// address. "0.0.0.0" and "::" are all of this machine's of their kind.
  virtual Result<std::unique_ptr<StreamListener>> listen_stream(const SocketAddress& address,
                                                                int backlog) = 0;
  /// Starts to connect, from `local_ip` (empty: any). How it ended tells StreamSocket::connected().
  virtual Result<std::unique_ptr<StreamSocket>> connect_stream(const std::string& local_ip,
                                                               const SocketAddress& peer) = 0;
  /// Whether an address is this machine's and an interface that has it has a link: a cable, a
  /// carrier. No value: that cannot be known, or not now (too many open files).
  virtual std::optional<bool> has_link(const std::string& ip) {
    (void)ip;
    return {};
  }
  /// News from now on. kNotSupported: has_link() must be asked (in simulation, where the network
  /// tells its devices).
  virtual Result<std::unique_ptr<LinkNews>> watch_links() {
    return make_error(Errc::kNotSupported, "this host tells no news of its links");
  }
};

}  // namespace braid::base
