// The planted bugs that the checkers must find; see base::Host::mutant.
#pragma once

#include <array>
#include <string_view>

namespace braid::sim {

struct Mutant {
  std::string_view name;
  std::string_view seen_as;  // part of the words of the checker that is for it
  uint64_t seed = 1;         // where the test begins to look; those are here that take many
};

/// Not a bug of the product: all disks of the world acknowledge flush and FUA and do nothing.
inline constexpr std::string_view kLyingMutant = "lying-disk";

/// Nor this: writes go to another place now and then.
inline constexpr std::string_view kMisdirectingMutant = "misdirecting-disk";

/// Nor this: a disk comes back from a power loss as it was at an earlier flush.
inline constexpr std::string_view kRevertingMutant = "reverting-disk";

inline constexpr std::array kMutants = {
    Mutant{"double-completion", "a second completion", 2},
    Mutant{"lost-flush", "no order of these explains", 3},
    Mutant{"permit-leak", "permits are free at rest", 7},
    Mutant{kLyingMutant, "no order of these explains"},
    Mutant{kMisdirectingMutant, "returned what was never written there"},
    Mutant{kRevertingMutant, "no order of these explains"},
    Mutant{"fua-dropped", "no order of these explains", 5},
    Mutant{"flush-noted-late", "a flush succeeded after", 2085},
    Mutant{"told-early", "a flush succeeded after", 50},
    Mutant{"flush-covers-late", "a flush succeeded after", 5160},
    Mutant{"incarnation-ignored", "a flush succeeded after", 6004},
    Mutant{"identity-ignored", "on a device that had been replaced", 2005},
    Mutant{"shrink-ignored", "on a device that had become smaller", 59},
    Mutant{"second-writer", "had it open for writing", 39},
    Mutant{"silence-ignored", "has not noticed", 84},
    Mutant{"tenure-ignored", "after another client had been let in for writing", 8067},
    Mutant{"path-fence-skipped", "broke the protocol", 115},
    Mutant{"fence-answered-early", "broke the protocol", 323},
    Mutant{"late-request-taken", "was done more than once", 4380},
    Mutant{"epoch-stale", "broke the protocol", 2001},
    Mutant{"numbers-kept", "broke the protocol", 2001},
    Mutant{"chunk-reused", "was done more than once", 37},
    Mutant{"renumbered", "was done more than once", 76},
    Mutant{"sequence-unchecked", "was done more than once", 76},
    Mutant{"done-twice", "was done more than once", 26},
    Mutant{"kept-forgotten", "was done more than once", 27},
    Mutant{"kept-too-much", "no order of these explains", 38},
    Mutant{"preflush-skipped", "no order of these explains", 2017},
    Mutant{"acknowledged-before-flush", "no order of these explains", 4048},
    Mutant{"disk-error-hidden", "no order of these explains", 6002},
    Mutant{"failed-flush-hidden", "no order of these explains", 6527},
    Mutant{"close-flush-hidden", "no order of these explains", 355},
    Mutant{"give-up-ignored", "has not given up", 6527},
    Mutant{"wakeup-lost", "while no fault was active", 2001},
    Mutant{"rnr-fatal", "that the hardware bridges", 73},
    Mutant{"impatient", "that the hardware bridges", 6},
    Mutant{"size-untold", "failed with out-of-range", 139},
    Mutant{"shortage-final", "memory for", 50},
    Mutant{"key-kept", "for want of a path", 14},
};

/// What no seed is known to show at present: they need a failed flush and a power loss around one
/// request. Directed tests of ledger and checkers show what these are.
inline constexpr std::array kRareMutants = {
    Mutant{"failure-stakes-ignored", "no order of these explains"},
    Mutant{"era-stuck", "no order of these explains"},
    Mutant{"loss-unmarked", "no order of these explains"},
};

/// Not a bug of the product: the world ends the process, to see that it says how to replay that.
inline constexpr std::string_view kCrashMutant = "crash";

}  // namespace braid::sim
