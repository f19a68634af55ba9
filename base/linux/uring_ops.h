// What a file operation asks of io_uring, and what an answer means: the parts of UringQueue that
// have no state of their own.
#pragma once

#include <liburing.h>

#include "base/host.h"

namespace braid::base {

/// Why an operation can never succeed, or kOk: range, alignment, read-only, size.
Errc check_io(const IoOp& op);
/// Nothing to do: a transfer of no bytes.
bool op_is_empty(const IoOp& op);
/// Fills a submission with what is left of the operation.
void prepare_io(const IoOp& op, io_uring_sqe& sqe);

enum class IoProgress {
  kDone,
  kAgain,    // short, interrupted, or with a further step: submit what is left
  kRefused,  // interrupted or put off time and again
  kPastEnd,  // the file is shorter than it was when opened
  kFailed,   // with the errno value -result
};
/// Takes the kernel's answer into account.
IoProgress advance_io(IoOp& op, int result);

}  // namespace braid::base
