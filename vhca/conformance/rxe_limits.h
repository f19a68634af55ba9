// What the kernel's rxe driver cannot be asked for, test by test, with the reason: as seen with
// kernel 6.1 (docs/rdma-devices.md). Whatever else fails on it is a bug. Memory windows are tested
// if IbvOptions::rxe_windows asks for them, on a wire that loses nothing.
#pragma once

#include <vector>

#include "vhca/conformance/rig.h"

namespace braid::vhca::conformance {

struct Limit {
  const char* why;
  std::vector<const char*> tests;
};

inline std::vector<Limit> limits_of_rxe() {
  return {
      // --- what it tells
      {"rxe tells no event of a request that it refused",
       {"ConformanceAsyncEvents.ARefusedRequestTellsTheResponder",
        "ConformanceAsyncEvents.TheEventWakesWhoSleeps",
        "ConformanceWindows.ARefusedAccessTellsTheResponder"}},
      {"rxe says LOC_QP_OP_ERR for lengths and protection, and REM_OP_ERR to the peer",
       {"ConformanceMemory.ASendThatWaitsForAReceiveFailsWhenItsMemoryGoes",
        "ConformanceMemory.AReceiveWhoseMemoryWentFailsBothEnds",
        "ConformanceMemory.ASharedReceiveWhoseMemoryWentFailsItsMessage",
        "ConformanceMemory.AReceiveOfSeveralRegistrationsWhoseOneMemoryWentIsNotFilled",
        "ConformanceAsyncEvents.WhatACompletionTellsIsNoEvent",
        "ConformanceLengths.AMessageLongerThanItsReceiveFailsBothEnds",
        "ConformanceErrors.AReceiveIntoMemoryThatMayNotBeWrittenFailsBothEnds",
        "ConformanceErrors.LocalMemoryIsCheckedForRangeAccessAndProtectionDomain",
        "ConformanceSrq.TheLengthIsThatOfTheReceiveTaken",
        "ConformanceSrq.AReceiveThatMayNotBeWrittenFailsItsMessage"}},
      {"verbs have no call that takes back what ibv_req_notify_cq asked for",
       {"ConformanceEvents.WhoTakesAnArmingBackIsToldNothingAndMayArmAgain"}},
      {"rxe tells SQ_DRAINED unasked, and does not tell that it drains",
       {"ConformanceDrain.AnIdleQueueIsDrainedAtOnce",
        "ConformanceDrain.WhatHadBegunIsFinishedWhatCameLaterWaits"}},
      {"rxe goes on after a drained queue only with the next post",
       {"ConformanceErrors.SendsWaitWhileTheQueueIsDrainedAndGoOnAfter"}},
      // --- posts
      {"rxe's library refuses to post an atomic that is not aligned or has not 8 bytes",
       {"ConformanceAtomics.WhatIsNotAllowedIsRefusedAndChangesNothing",
        "ConformanceAtomics.AnAnswerHasEightBytes"}},
      {"rxe executes an atomic whose answer has no place",
       {"ConformanceAtomics.TheAnswerNeedsMemoryThatMayBeWritten"}},
      {"rxe takes an atomic or a READ with IBV_SEND_INLINE",
       {"ConformanceAtomics.TheyCannotBeInline",
        "ConformanceData.InlineBeyondTheLimitAndInlineReadAreRefused"}},
      {"rxe's library posts opcodes that are none",
       {"ConformanceData.OpcodesThatAreNotThereAreRefused"}},
      {"rxe gives a slot of the send queue back as soon as its request is done",
       {"ConformanceData.UnsignalledWorkMakesNoCompletionAndItsSlotComesBackWithTheNext"}},
      {"without initiator depth rxe lets what returns data wait for ever; the CM takes the depth "
       "down to what the server grants",
       {"ConformanceAtomics.WithoutResponderResourcesNothingThatReturnsDataIsTaken",
        "ConformanceAtomics.WithoutInitiatorDepthTheyAreALocalError",
        "ConformanceErrors.AReadWithoutInitiatorDepthIsALocalError"}},
      {"rxe looks at local keys ahead of their turn, and then never ends what waits before",
       {"ConformanceErrors.ABadLocalKeyFailsInItsTurn",
        "ConformanceMemory.WhatWaitsBehindAMessageFailsInItsTurn"}},
      // --- memory windows
      {"rxe looks at the bounds of the memory below a window, not at the window's",
       {"ConformanceWindows.BoundsAreThoseOfTheWindow"}},
      {"rxe tells that a key was invalidated by the flag of a checksum",
       {"ConformanceWindows.TheReceiverIsToldWhichKeyAPeerInvalidated"}},
      {"rxe says REM_INV_REQ_ERR for an invalidation that it refuses, and tells no event",
       {"ConformanceWindows.ThePeerInvalidatesOnlyWhatIsItsOwn"}},
      {"rxe binds with the last 8 bits of any key, and with flags that no window has",
       {"ConformanceWindows.WhatMayNotBeBoundIsNot"}},
      {"rxe does a bind again with a request before it that is repeated, and nothing behind that "
       "ends",
       {"ConformanceWindows.ABindBehindAMessageThatWaitsIsNotThereYet",
        "ConformanceWindows.ABindIsNotRepeatedWithAMessageThatIs",
        "ConformanceWindows.WhatWaitsIsFlushed"}},
      {"the kernel panics in rxe when a window is invalidated that is not bound, which an "
       "invalidation behind a request that is repeated would do",
       {"ConformanceWindows.InvalidatingWhatIsNoWindowFails",
        "ConformanceWindows.RnrRetriesAreNotCountedAnewByWhatIsDoneBehindTheMessage"}},
      // --- shared receives
      {"rxe's CQs and SRQs hold more than they say, and an SRQ takes any limit",
       {"ConformanceAsyncEvents.AnOverrunCqTellsOfItselfAndFailsItsQp",
        "ConformanceData.AnOverrunCompletionQueueSaysSo",
        "ConformanceSrq.ItHoldsWhatItWasMadeFor"}},
      {"rxe tells that a CQ was overrun, and not of its QP, which a send does not even fail",
       {"ConformanceOrder.MessagesThatNobodyPollsForWaitOrOverrunTheirCq",
        "ConformanceOrder.SendsThatNobodyPollsForAreRefusedOrOverrunTheirCq"}},
      {"rxe tells receives of a QP that has none of its own",
       {"ConformanceSrq.AQpWithSharedReceivesTakesNoneOfItsOwn"}},
      {"rxe looks for a shared receive's memory in the QP's protection domain",
       {"ConformanceSrq.ReceivesAreOfTheProtectionDomainOfTheQueue"}},
      {"rxe takes a receive before it looks at the key of a write",
       {"ConformanceSrq.ARefusedWriteTakesNoReceive"}},
      {"rxe does not know LAST_WQE_REACHED",
       {"ConformanceSrq.AQpInErrorLeavesTheReceivesAndTells"}},
      {"rxe looks at an SRQ's limit only when a receive is taken",
       {"ConformanceSrq.ALimitThatIsReachedAlreadyTellsAtOnce"}},
  };
}

inline void limit_to_rxe(RigFactory& factory) {
  factory.refusal_takes_receive = true;
  factory.queues_hold_more = true;
  factory.slow = true;
  for (const Limit& limit : limits_of_rxe()) {
    for (const char* const test : limit.tests) factory.cannot.emplace_back(test, limit.why);
  }
}

}  // namespace braid::vhca::conformance
