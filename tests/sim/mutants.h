// The planted bugs that the checkers must find; see base::Host::mutant.
#pragma once

#include <array>
#include <string_view>

namespace braid::sim {

struct Mutant {
  std::string_view name;
  std::string_view seen_as;  // part of the words of the checker that is for it
};

/// Not a bug of the product: all disks of the world acknowledge flush and FUA and do nothing.
inline constexpr std::string_view kLyingMutant = "lying-disk";

inline constexpr std::array kMutants = {
    Mutant{"double-completion", "a second completion"},
    Mutant{"lost-flush", "no order of these explains"},
    Mutant{"permit-leak", "permits are free at rest"},
    Mutant{kLyingMutant, "no order of these explains"},
    Mutant{"fua-dropped", "no order of these explains"},
    Mutant{"flush-covers-late", "a flush succeeded after"},
    Mutant{"incarnation-ignored", "a flush succeeded after"},
    Mutant{"identity-ignored", "on a device that had been replaced"},
    Mutant{"second-writer", "had it open for writing"},
    Mutant{"silence-ignored", "has not noticed"},
    Mutant{"tenure-ignored", "after another client had been let in for writing"},
};

/// Not a bug of the product: the world ends the process, to see that it says how to replay that.
inline constexpr std::string_view kCrashMutant = "crash";

}  // namespace braid::sim
