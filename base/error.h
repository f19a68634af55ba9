// The codes by which every layer of Braid says why something failed.
//
// One enumeration serves control paths (inside Error) and data paths (alone, as a completion
// status). It never crosses a wire: each protocol maps it at its edge.
#pragma once

#include <cstdint>
#include <string_view>

namespace braid::base {

enum class [[nodiscard]] Errc : uint16_t{
    kOk = 0,
    kInvalid,       // an argument or message breaks a rule; retrying the same is useless
    kNotFound,      // the named thing does not exist
    kExists,        // the named thing exists already
    kBusy,          // held by another; may work later
    kPermission,    // refused by policy or by the operating system
    kReadOnly,      // a change was asked of something that may only be read
    kNotSupported,  // this implementation, device or kernel cannot do it
    kOutOfRange,    // past the end of a device, buffer or table
    kNoMemory,      // memory or a fixed table is used up
    kNoSpace,       // the disk is full
    kIo,            // the medium failed
    kTimedOut,      // no answer within the stated time
    kCanceled,      // given up on request of the caller
    kDisconnected,  // the connection or the peer is gone
    kRefused,       // nobody listens there, or the peer said no
    kProtocol,      // the peer sent something that the protocol does not allow
    kWouldBlock,    // nothing to do right now; wait for the announced event
    kStale,         // belongs to an earlier life of the same thing (incarnation, epoch)
    kDead,          // this simulated process has been killed: its Host refuses every call
};

/// A short word for logs and JSON, for example "timed-out".
std::string_view to_string(Errc code);

/// The code that fits a positive errno value; kIo for what has no better word.
Errc errc_from_errno(int sys_errno);

/// The positive errno value nearest to a code; 0 for kOk.
int errno_from_errc(Errc code);

}  // namespace braid::base
