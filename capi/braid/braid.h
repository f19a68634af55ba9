// Braid's C interface: remote block devices in a program of one's own, without the kernel and
// without a daemon.
//
// A context holds devices and what carries their data: one event loop, and one session to each
// server, which the devices from there share. Reads and writes run on the calling thread, between
// this process and the server; while a call polls it makes no system call for each request but to
// let others have the processor, allocates nothing and takes no lock.
//
//   Threads    A context, with all of its devices, is used by one thread at a time, whichever; a
//              call that comes while another thread is inside one fails with -EBUSY and changes
//              nothing; braid_wake() alone may be called at any time. A program with several
//              threads gives each a context. A thread must not end while requests that it has
//              submitted are in flight. A thread of the library, asleep but for a look every 50 ms,
//              answers for a program that does not call, so that a minute of computing costs no
//              session.
//   fork       After fork() a context is the parent's. In the child every call fails with -EPERM
//              and touches nothing; memory of braid_alloc() is still shared with the parent there:
//              leave it alone.
//   Errors     A call fails with a negative errno; braid_error() has the sentence that names the
//              thing, the value and what would be right. Nothing is printed unless `log` says so.
//   Losses     While no path leads to the server, requests wait, and go on when there is one; see
//              the settings give-up-after and lost-after. braid_explain() says what a device waits
//              for. A write that was acknowledged is durable when a later braid_flush() has
//              succeeded, or at once with BRAID_FUA.
//
// Offsets and lengths are bytes, multiples of braid_info::logical_block_bytes. Requests of any
// length are taken; those longer than the device takes at once are sent in pieces, and one that
// fails may have been done in part.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BRAID_API __attribute__((visibility("default")))

struct braid_context;
struct braid_device;

/// Of the library: "0.1.0".
BRAID_API const char* braid_version(void);

// --- contexts

/// A context without devices. Null only for want of memory.
BRAID_API struct braid_context* braid_new(void);

/// Ends everything: closes what is open, and frees its memory when nothing uses it any more. Null
/// is allowed. Returns what a call in vain would: -EBUSY (another thread), -EPERM (fork).
BRAID_API int braid_free(struct braid_context* context);

/// A setting, which holds for what is opened afterwards; `poll` for all calls afterwards that wait
/// for requests (braid_open() and braid_close() look for 50us at a time whatever it says). Those
/// marked (*) are fixed, -EBUSY, once a device has been opened or braid_fd() has given a
/// descriptor; what failed fixes nothing. -EINVAL for a name or value that there is not.
///   access         rw (default), ro, migration
///   key            file with the client's key, one line; empty (default): none
///   give-up-after  so long may a device be away before what waits fails with -ETIMEDOUT: 500ms,
///                  30s, never (default)
///   lost-after     so long may a server be away before its devices are lost for good: as above
///   poll           how long a call spins before it sleeps: 50us (default), 2ms, 1s; while an
///                  answer is owed 4 to 20 times that, but no more than 1 ms for it; 0: not at all
///                  (sleeps cost least if that is so from the first device on); never: it does not
///                  sleep
///   device (*)     the RDMA device, rdma for all, soft0 (default) for the software HCA; `braid
///                  devices` lists them
///   wire (*)       auto (default), tcp: TCP also to addresses of this machine
///   queue-depth (*)  requests that braid_submit() takes at once, 1 to 4096, 256 by default
///   name (*)       of this client, as the server's operator sees it: HOST.PROGRAM.PID by default
///   log (*)        off (default), error, warning, info, debug: lines on stderr
BRAID_API int braid_set(struct braid_context* context, const char* name, const char* value);

/// The sentence of the last call on this context that failed; empty if none did. Good until the
/// next call that fails. A call that was refused because another thread is inside leaves none, as
/// it changes nothing; while that is so, this says so.
BRAID_API const char* braid_error(const struct braid_context* context);

// --- devices

/// Opens a device; blocks until it is there or refused.
///   HOST[:PORT][,HOST[:PORT]...]/EXPORT  of a server, by one or several paths: as `braid map`
///   memory:SIZE   of this process: memory:1G
///   file:PATH     a file or disk of this machine, by its absolute path
///   null:SIZE     takes every write, reads as zeroes
BRAID_API int braid_open(struct braid_context* context, const char* target,
                         struct braid_device** device);

/// Closes a device and frees its memory; what is in flight for it ends with -ECANCELED, which
/// braid_poll() still tells. Does not flush. -EBUSY, with a sentence: requests in flight for other
/// devices use its memory. Then nothing has changed; fetch their completions (braid_poll(), and
/// braid_give_up() where their server is away) or close those devices first, or free the context,
/// which never refuses. Where another thread is inside it is -EBUSY, too, without a new sentence.
BRAID_API int braid_close(struct braid_device* device);

enum {
  BRAID_READ_ONLY = 1 << 0,
  BRAID_WRITE_CACHE = 1 << 1,  // braid_flush() matters
  BRAID_CAN_DISCARD = 1 << 2,
  BRAID_CAN_WRITE_ZEROES = 1 << 3,
  BRAID_CAN_FUA = 1 << 4,  // else BRAID_FUA is a flush behind the request
  BRAID_ROTATIONAL = 1 << 5,
  BRAID_REMOTE = 1 << 6,
};

struct braid_info {
  size_t struct_bytes;  // in: sizeof(struct braid_info); out: what of it was filled
  uint64_t size_bytes;  // may change while the device is open
  uint32_t flags;       // BRAID_READ_ONLY and so on
  uint32_t logical_block_bytes;
  uint32_t physical_block_bytes;
  uint32_t max_io_bytes;  // longer reads and writes go in pieces
  uint64_t max_discard_bytes;
  uint64_t max_write_zeroes_bytes;
  uint32_t discard_granularity_bytes;
  uint32_t queue_depth;  // further requests wait inside
  char identity[256];    // names the same bytes wherever they are opened
};
BRAID_API int braid_info(struct braid_device* device, struct braid_info* info);

struct braid_statistics {
  size_t struct_bytes;  // in: sizeof(struct braid_statistics); out: what of it was filled
  uint64_t reads, read_bytes, writes, write_bytes;
  uint64_t flushes, discards, write_zeroes, errors;
  uint64_t copies;         // payloads that lay in memory not of braid_alloc(), copied once more
  uint64_t messages;       // to and from the server, of all its devices in this context
  uint64_t reconnects;     // of the session, likewise
  uint64_t keeper_rounds;  // of the context: how often the library's thread stood in
};
BRAID_API int braid_statistics(struct braid_device* device, struct braid_statistics* statistics);

/// No more waiting for a device that is away, as if give-up-after were over: what waits for it ends
/// with -ETIMEDOUT, which braid_poll() tells, and so does what is asked of it until it is back. Its
/// memory stays. 0, also where the device is not away: then nothing happens.
BRAID_API int braid_give_up(struct braid_device* device);

/// What the device waits for and what would unblock it, or that it is well. Good until the next
/// call for the device.
BRAID_API const char* braid_explain(struct braid_device* device);

// --- memory

/// Zeroed memory, page-aligned, that the device reads and writes without a copy, and so do all
/// devices from the same server; others copy. Null: errno says why, and braid_error() in words
/// (but of EBUSY only while the other thread is inside).
BRAID_API void* braid_alloc(struct braid_device* device, size_t bytes);
/// Gives back memory of braid_alloc(), by its first byte. -EBUSY, with a sentence: a request in
/// flight uses it, of this device or another; it stays.
BRAID_API int braid_dealloc(struct braid_device* device, void* memory);

// --- one request at a time: each returns 0 when it is done

enum {
  BRAID_FUA = 1 << 0,       // durable when it is done: write, discard, write zeroes
  BRAID_NO_UNMAP = 1 << 1,  // write zeroes: keep the space allocated
};

BRAID_API int braid_pread(struct braid_device* device, void* buffer, size_t length,
                          uint64_t offset);
BRAID_API int braid_pwrite(struct braid_device* device, const void* buffer, size_t length,
                           uint64_t offset, unsigned flags);
/// All that was acknowledged before the call is durable when it is done.
BRAID_API int braid_flush(struct braid_device* device);
BRAID_API int braid_discard(struct braid_device* device, uint64_t offset, uint64_t length,
                            unsigned flags);
BRAID_API int braid_write_zeroes(struct braid_device* device, uint64_t offset, uint64_t length,
                                 unsigned flags);

// --- many requests

enum braid_op {
  BRAID_OP_READ,
  BRAID_OP_WRITE,
  BRAID_OP_FLUSH,  // offset, length and buffer are 0
  BRAID_OP_DISCARD,
  BRAID_OP_WRITE_ZEROES,
};

struct braid_io {
  uint32_t op;     // enum braid_op
  uint32_t flags;  // BRAID_FUA, BRAID_NO_UNMAP
  struct braid_device* device;
  void* buffer;  // read, write: the library's until the completion
  uint64_t offset;
  uint64_t length;
  uint64_t user_data;    // comes back with the completion
  uint64_t reserved[2];  // 0
};

struct braid_completion {
  uint64_t user_data;
  int32_t result;  // 0, or a negative errno
  uint32_t reserved;
};

/// Begins requests, in order; they may end in any order. Returns how many were taken: fewer than
/// `count` when queue-depth are in flight or not yet fetched, or when the next one is malformed
/// (-EINVAL if it is the first). Does not block. Over TCP the requests of a call go with one system
/// call, 1 MiB of what is written at once; the rest with the next braid_poll().
BRAID_API int braid_submit(struct braid_context* context, const struct braid_io* requests,
                           unsigned count);

/// Fetches completions, at most `count`; waits for the first up to `timeout_ns`, without limit if
/// that is negative. Returns how many; 0 when the time was over, nothing is in flight, or
/// braid_wake() was called.
BRAID_API int braid_poll(struct braid_context* context, struct braid_completion* completions,
                         unsigned count, int64_t timeout_ns);

/// Ends a wait. The braid_poll() that waits, or else the next one that would (so with a timeout
/// other than 0, and with nothing to fetch), returns 0 at once; a descriptor of braid_fd() becomes
/// readable. Wakes add up to one, until a braid_poll() has returned 0 for them. What is in flight
/// stays so, and no completion is lost.
/// From any thread, also while another is inside, and from a signal handler: no lock, no
/// allocation, errno stays as it is. A signal as such ends no wait. Whoever calls sees to it that
/// the context is not freed meanwhile.
/// The calls that wait for one request or for a device (braid_pread() and so on, braid_open(),
/// braid_close()) go on: their request is under way, in memory of the caller's. A program that must
/// be able to stop them sets give-up-after, or uses braid_submit() and braid_poll(), and when it is
/// woken braid_give_up(): again each second or so until what is in flight has ended, as that the
/// server is away may not be known yet.
BRAID_API int braid_wake(struct braid_context* context);

/// For a program with a loop of its own: a descriptor, the context's, that is readable when
/// braid_poll() should be called. From the first call of braid_fd() on, a braid_poll() with timeout
/// 0 that returns 0 arms it, and any other call disarms it; so submit, fetch until that returns 0,
/// and then wait (poll() and the like may end with EINTR). Negative: an error.
BRAID_API int braid_fd(struct braid_context* context);

#ifdef __cplusplus
}
#endif
