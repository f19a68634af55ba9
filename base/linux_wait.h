// Waiting for a reactor of LinuxHost elsewhere than in it: in poll(2), say, of a program with a
// loop of its own.
//
// In place of IoQueue::wait(), on the reactor's thread; begin and end may be in different turns.
#pragma once

#include "base/host.h"

namespace braid::base {

/// Readable once something has happened or wake() was called, between begin_wait() and end_wait().
/// The queue's own.
int wait_descriptor(const IoQueue& queue);
/// Behind Reactor::prepare_sleep(). False: there is something to do already.
bool begin_wait(IoQueue& queue);
void end_wait(IoQueue& queue);

}  // namespace braid::base
