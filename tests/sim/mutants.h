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

inline constexpr std::array kMutants = {
    Mutant{"double-completion", "a second completion"},
    Mutant{"lost-flush", "no order of these explains"},
    Mutant{"permit-leak", "permits are free at rest", 5},
    Mutant{kLyingMutant, "no order of these explains"},
    Mutant{kMisdirectingMutant, "returned what was never written there"},
    Mutant{"fua-dropped", "no order of these explains"},
    Mutant{"flush-covers-late", "a flush succeeded after", 32},
    Mutant{"incarnation-ignored", "a flush succeeded after", 5},
    Mutant{"identity-ignored", "on a device that had been replaced", 4},
    Mutant{"second-writer", "had it open for writing", 7},
    Mutant{"silence-ignored", "has not noticed", 5},
    Mutant{"tenure-ignored", "after another client had been let in for writing", 7},
    Mutant{"path-fence-skipped", "broke the protocol", 65},
    Mutant{"fence-answered-early", "broke the protocol", 405},
    Mutant{"epoch-stale", "broke the protocol", 4},
    Mutant{"numbers-kept", "broke the protocol"},
    Mutant{"chunk-reused", "broke the protocol", 4},
    Mutant{"renumbered", "broke the protocol", 4},
    Mutant{"sequence-unchecked", "no order of these explains", 380},
    Mutant{"done-twice", "no order of these explains", 380},
    Mutant{"preflush-skipped", "no order of these explains", 32},
    Mutant{"acknowledged-before-flush", "no order of these explains", 21},
    Mutant{"disk-error-hidden", "no order of these explains", 2},
    Mutant{"give-up-ignored", "has not given up", 15},
    Mutant{"wakeup-lost", "while no fault was active"},
    Mutant{"rnr-fatal", "that the hardware bridges", 2},
    Mutant{"impatient", "that the hardware bridges", 20},
    Mutant{"key-kept", "for want of a path", 7},
};

/// Not a bug of the product: the world ends the process, to see that it says how to replay that.
inline constexpr std::string_view kCrashMutant = "crash";

}  // namespace braid::sim
